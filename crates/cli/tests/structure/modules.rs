//! The modules of a crate, read from its sources: definitions, imports and mentioned paths.

use std::collections::{BTreeMap, HashMap};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, UseTree, Visibility};

/// The source files of a crate, by path below `src`.
pub(crate) type Sources = BTreeMap<String, String>;

/// The names of a path, which `::` joins.
pub(crate) type Path = Vec<String>;

/// The definition of a name in a module.
pub(crate) enum Definition {
    /// A type, function, constant or macro.
    Item,
    /// A module, by its index in [`ModuleTree::modules`].
    Module(usize),
    /// Another name, by a `use` declaration.
    Import { path: Path, is_public: bool },
}

/// A path in the code, in a `use` declaration or elsewhere.
pub(crate) struct Mention {
    pub(crate) path: Path,
    pub(crate) line: usize,
    /// True if it is in a `use` declaration that is not private.
    pub(crate) is_public_use: bool,
}

/// A module, which is a file or a block in one.
pub(crate) struct Module {
    /// Its names, from the crate's root.
    pub(crate) path: Path,
    pub(crate) parent: Option<usize>,
    /// Path of its file below `src`.
    pub(crate) file: String,
    pub(crate) names: HashMap<String, Vec<Definition>>,
    /// The paths imported by `*`.
    pub(crate) globs: Vec<Path>,
    pub(crate) mentions: Vec<Mention>,
}

/// The modules of a crate, without those that are compiled in tests only.
pub(crate) struct ModuleTree {
    pub(crate) modules: Vec<Module>,
    /// Files of modules that are compiled in tests only.
    test_files: Vec<String>,
}

impl ModuleTree {
    /// Reads a crate from its roots: `lib.rs`, `main.rs` and the files in `bin`.
    ///
    /// # Panics
    /// A source does not parse, or a module has no file.
    pub(crate) fn read(sources: &Sources) -> Self {
        let mut tree = Self { modules: Vec::new(), test_files: Vec::new() };
        for file in sources.keys().filter(|file| is_root(file)) {
            tree.read_file(sources, file, Vec::new(), None);
        }
        tree
    }

    /// Returns the files that no module declares.
    pub(crate) fn undeclared<'s>(&self, sources: &'s Sources) -> Vec<&'s str> {
        let is_declared = |file: &str| {
            self.modules.iter().any(|module| module.file == file)
                || self.test_files.iter().any(|tests| tests == file || is_in(file, tests))
        };
        sources.keys().map(String::as_str).filter(|file| !is_declared(file)).collect()
    }

    fn read_file(&mut self, sources: &Sources, file: &str, path: Path, parent: Option<usize>) -> usize {
        let source =
            sources.get(file).unwrap_or_else(|| panic!("there is no file {file} for module {path:?}"));
        let syntax = syn::parse_file(source).unwrap_or_else(|error| panic!("{file} does not parse: {error}"));
        let module = self.add(file, path, parent);
        let mut reader =
            Reader { tree: self, sources, file: file.into(), directory: children_directory(file), module };
        reader.visit_file(&syntax);
        module
    }

    fn add(&mut self, file: &str, path: Path, parent: Option<usize>) -> usize {
        self.modules.push(Module {
            path,
            parent,
            file: file.into(),
            names: HashMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
        });
        self.modules.len() - 1
    }
}

/// Returns true if the file is a root of a crate's modules.
pub(crate) fn is_root(file: &str) -> bool {
    file == "lib.rs" || file == "main.rs" || file.starts_with("bin/")
}

/// Returns true if `file` is below the folder of another file's module.
fn is_in(file: &str, module_file: &str) -> bool {
    file.starts_with(&children_directory(module_file))
}

/// Returns the folder of the modules that a file declares, with a slash at the end.
pub(crate) fn children_directory(file: &str) -> String {
    let (directory, name) = file.rsplit_once('/').map_or(("", file), |(directory, name)| (directory, name));
    let directory = if directory.is_empty() { String::new() } else { format!("{directory}/") };
    match name {
        "mod.rs" => directory,
        _ if is_root(file) => directory,
        _ => format!("{directory}{}/", name.trim_end_matches(".rs")),
    }
}

/// Reads the syntax of a file into the tree.
struct Reader<'t> {
    tree: &'t mut ModuleTree,
    sources: &'t Sources,
    file: String,
    /// The folder of the files of modules declared here.
    directory: String,
    module: usize,
}

impl Reader<'_> {
    fn module(&mut self) -> &mut Module {
        &mut self.tree.modules[self.module]
    }

    fn define(&mut self, name: String, definition: Definition) {
        self.module().names.entry(name).or_default().push(definition);
    }

    fn mention(&mut self, path: Path, line: usize) {
        self.module().mentions.push(Mention { path, line, is_public_use: false });
    }

    /// Returns the file of a module declared here, by its name or its `path` attribute.
    fn file_of(&self, item: &ItemMod) -> String {
        if let Some(path) = path_attribute(&item.attrs) {
            let directory = self.file.rsplit_once('/').map_or("", |(directory, _)| directory);
            return format!("{directory}/{path}").trim_start_matches('/').into();
        }
        let file = format!("{}{}.rs", self.directory, item.ident);
        if self.sources.contains_key(&file) {
            file
        } else {
            format!("{}{}/mod.rs", self.directory, item.ident)
        }
    }

    fn child_path(&self, item: &ItemMod) -> Path {
        let mut path = self.tree.modules[self.module].path.clone();
        path.push(item.ident.to_string());
        path
    }

    /// Reads a module with an inline body.
    fn read_inline(&mut self, item: &ItemMod, content: &[Item]) -> usize {
        let path = self.child_path(item);
        let file = self.file.clone();
        let child = self.tree.add(&file, path, Some(self.module));
        let mut reader = Reader {
            tree: self.tree,
            sources: self.sources,
            file,
            directory: format!("{}{}/", self.directory, item.ident),
            module: child,
        };
        content.iter().for_each(|item| reader.visit_item(item));
        child
    }

    /// Adds one branch of a `use` declaration, which begins with `prefix`.
    fn import(&mut self, tree: &UseTree, prefix: &Path, is_public: bool) {
        let joined = |name: String| prefix.iter().cloned().chain([name]).collect::<Path>();
        match tree {
            UseTree::Path(branch) => {
                self.import(&branch.tree, &joined(branch.ident.to_string()), is_public);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix, is_public)),
            UseTree::Glob(_) => self.module().globs.push(prefix.clone()),
            UseTree::Name(leaf) => {
                self.import_name(&joined(leaf.ident.to_string()), None, &leaf.ident, is_public);
            }
            UseTree::Rename(leaf) => {
                let name = leaf.rename.to_string();
                self.import_name(&joined(leaf.ident.to_string()), Some(name), &leaf.ident, is_public);
            }
        }
    }

    fn import_name(&mut self, path: &[String], rename: Option<String>, at: &syn::Ident, is_public: bool) {
        let path: Path = match path {
            [parent @ .., last] if last == "self" && !parent.is_empty() => parent.to_vec(),
            path => path.to_vec(),
        };
        let name = rename.unwrap_or_else(|| path[path.len() - 1].clone());
        self.define(name, Definition::Import { path: path.clone(), is_public });
        let line = at.span().start().line;
        self.module().mentions.push(Mention { path, line, is_public_use: is_public });
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = attributes_and_name(item);
        if attributes.iter().any(is_test) {
            if let Item::Mod(item) = item
                && item.content.is_none()
            {
                let file = self.file_of(item);
                self.tree.test_files.push(file);
            }
            return;
        }
        if let Some(name) = name {
            self.define(name.to_string(), Definition::Item);
        } else if let Item::Macro(item) = item {
            for name in items_in(&item.mac.tokens) {
                self.define(name, Definition::Item);
            }
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let child = match &item.content {
            Some((_, content)) => self.read_inline(item, content),
            None => {
                let (file, path) = (self.file_of(item), self.child_path(item));
                self.tree.read_file(self.sources, &file, path, Some(self.module))
            }
        };
        self.define(item.ident.to_string(), Definition::Module(child));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &Vec::new(), !matches!(item.vis, Visibility::Inherited));
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let is_test_method = matches!(item, ImplItem::Fn(method) if method.attrs.iter().any(is_test));
        if !is_test_method {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.mention(names, first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    /// In macros and attributes, everything that resembles a path counts as one.
    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        for (path, line) in paths_in(tokens) {
            self.mention(path, line);
        }
    }
}

/// Returns the paths among tokens, with their lines. A name after a dot is a field or a method, and is not
/// included.
fn paths_in(tokens: &TokenStream) -> Vec<(Path, usize)> {
    let mut paths: Vec<(Path, usize)> = Vec::new();
    let mut separator = String::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Punct(punct) => separator.push(punct.as_char()),
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                match paths.last_mut() {
                    Some((path, _)) if separator == "::" => path.push(ident.to_string()),
                    _ if separator == "." => {}
                    _ => paths.push((vec![ident.to_string()], line)),
                }
                separator.clear();
            }
            TokenTree::Group(group) => {
                paths.extend(paths_in(&group.stream()));
                separator = "()".into();
            }
            TokenTree::Literal(_) => separator = "literal".into(),
        }
    }
    paths
}

/// Returns the names of the items that a macro's tokens contain, which the macro defines.
fn items_in(tokens: &TokenStream) -> Vec<String> {
    const KEYWORDS: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
    let mut names = Vec::new();
    let mut follows_keyword = false;
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) if follows_keyword => {
                names.push(ident.to_string());
                follows_keyword = false;
            }
            TokenTree::Ident(ident) => follows_keyword = KEYWORDS.iter().any(|keyword| ident == keyword),
            TokenTree::Group(group) => names.extend(items_in(&group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => follows_keyword = false,
        }
    }
    names
}

/// Returns true if an attribute restricts an item to tests.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("test")
        || attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
}

/// Returns the file named by a `path` attribute.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &attribute.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
        _ => None,
    }
}

/// Returns the attributes of an item and the name that it defines. Modules and imports, which are read
/// separately, have no name here.
fn attributes_and_name(item: &Item) -> (&[Attribute], Option<&syn::Ident>) {
    match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident)),
        Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        Item::Static(item) => (&item.attrs, Some(&item.ident)),
        Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        Item::Type(item) => (&item.attrs, Some(&item.ident)),
        Item::Union(item) => (&item.attrs, Some(&item.ident)),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        Item::Mod(item) => (&item.attrs, None),
        Item::Use(item) => (&item.attrs, None),
        Item::Impl(item) => (&item.attrs, None),
        Item::ForeignMod(item) => (&item.attrs, None),
        _ => (&[], None),
    }
}
