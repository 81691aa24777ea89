//! The imports between the files of a crate, with the imported names.

use std::collections::BTreeMap;

use super::modules::{Definition, Mention, ModuleTree};

/// Maximum number of re-exports and renames between a name and its definition.
const LONGEST_CHAIN: usize = 16;

/// The names that one file imports from another, with the line of the first use of each.
pub(crate) type Names = BTreeMap<String, usize>;

/// The imports between the files of one crate, by importing and imported file.
///
/// A name belongs to the file that defines it, whichever module re-exports it. Declaring a module and
/// re-exporting its definitions are no imports. Importing a module counts by the names used from it.
#[derive(Default)]
pub(crate) struct Arrows(pub(crate) BTreeMap<(String, String), Names>);

impl Arrows {
    /// Finds the imports in a crate.
    pub(crate) fn of(tree: &ModuleTree) -> Self {
        let mut arrows = Self::default();
        for (place, module) in tree.modules.iter().enumerate() {
            for mention in &module.mentions {
                arrows.add(tree, place, mention);
            }
        }
        arrows
    }

    fn add(&mut self, tree: &ModuleTree, place: usize, mention: &Mention) {
        let Some((target, name)) = tree.resolve(place, &mention.path) else { return };
        let (from, to) = (&tree.modules[place], &tree.modules[target]);
        let is_re_export_of_child = mention.is_public_use && to.path.starts_with(&from.path);
        if from.file != to.file && !is_re_export_of_child {
            let names = self.0.entry((from.file.clone(), to.file.clone())).or_default();
            names.entry(name).or_insert(mention.line);
        }
    }

    /// Returns the files that a file imports.
    pub(crate) fn imported_by<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a str> {
        let after = self.0.range((file.to_owned(), String::new())..);
        after.take_while(move |((from, _), _)| from == file).map(|((_, to), _)| to.as_str())
    }

    /// Returns a line with the importing file, the imported file, and the names with their lines.
    pub(crate) fn describe(&self, from: &str, to: &str) -> String {
        let names = self.0.get(&(from.into(), to.into())).into_iter().flatten();
        let names: Vec<String> = names.map(|(name, line)| format!("{name} (line {line})")).collect();
        format!("{from} imports {to}: {}", names.join(", "))
    }
}

impl ModuleTree {
    /// Returns the module that defines the item at a path, seen from the module at `place`, and the item's
    /// name. `None` for a module, and for items of other crates.
    fn resolve(&self, place: usize, path: &[String]) -> Option<(usize, String)> {
        match self.follow(place, path, LONGEST_CHAIN)? {
            Found::Item(module, name) => Some((module, name)),
            Found::Module(_) => None,
        }
    }

    fn follow(&self, place: usize, path: &[String], chain: usize) -> Option<Found> {
        let chain = chain.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => self.root_of(place),
            "self" => place,
            "super" => self.modules[place].parent?,
            _ => return self.look_up(Look { from: place, into: place }, path, chain),
        };
        match rest.first().map(String::as_str) {
            None => Some(Found::Module(start)),
            Some("super") => self.follow(start, rest, chain),
            Some(_) => self.look_up_or_place(Look { from: place, into: start }, rest, chain),
        }
    }

    /// As [`ModuleTree::look_up`]. Definitions by a macro are unknown: such a name belongs to the module that
    /// it is imported from.
    fn look_up_or_place(&self, look: Look, path: &[String], chain: usize) -> Option<Found> {
        let name = path.first()?;
        self.look_up(look, path, chain).or_else(|| Some(Found::Item(look.into, name.clone())))
    }

    /// Finds a path whose first name is defined or imported in a module.
    fn look_up(&self, look: Look, path: &[String], chain: usize) -> Option<Found> {
        let chain = chain.checked_sub(1)?;
        let (name, rest) = path.split_first()?;
        let definitions = self.modules[look.into].names.get(name).into_iter().flatten();
        let mut found: Vec<(bool, Found)> = definitions
            .filter(|definition| self.is_visible(look, definition))
            .filter_map(|definition| {
                let found = self.defined(look, definition, path, chain)?;
                // A module may have the same name as an item beside it. Only the module contains further
                // names.
                let is_second_choice = match rest {
                    [] => matches!(found, Found::Module(_)),
                    _ => !matches!(definition, Definition::Module(_)),
                };
                Some((is_second_choice, found))
            })
            .collect();
        found.sort_by_key(|(is_second_choice, _)| *is_second_choice);
        found.into_iter().map(|(_, found)| found).next().or_else(|| self.look_up_globs(look, path, chain))
    }

    /// Private imports are visible in their module and below it.
    fn is_visible(&self, look: Look, definition: &Definition) -> bool {
        match definition {
            Definition::Import { is_public: false, .. } => {
                self.modules[look.from].path.starts_with(&self.modules[look.into].path)
            }
            _ => true,
        }
    }

    fn defined(&self, look: Look, definition: &Definition, path: &[String], chain: usize) -> Option<Found> {
        let (name, rest) = path.split_first()?;
        match definition {
            Definition::Item => Some(Found::Item(look.into, name.clone())),
            Definition::Import { path: target, .. } => {
                let target: Vec<String> = target.iter().chain(rest).cloned().collect();
                self.follow(look.into, &target, chain)
            }
            Definition::Module(module) if rest.is_empty() => Some(Found::Module(*module)),
            Definition::Module(module) => {
                self.look_up_or_place(Look { from: look.from, into: *module }, rest, chain)
            }
        }
    }

    fn look_up_globs(&self, look: Look, path: &[String], chain: usize) -> Option<Found> {
        self.modules[look.into].globs.iter().find_map(|glob| match self.follow(look.into, glob, chain)? {
            Found::Module(module) => self.look_up(Look { from: look.into, into: module }, path, chain),
            Found::Item(..) => None,
        })
    }

    fn root_of(&self, place: usize) -> usize {
        self.modules[place].parent.map_or(place, |parent| self.root_of(parent))
    }
}

/// A lookup of a name in one module by another.
#[derive(Clone, Copy)]
struct Look {
    from: usize,
    into: usize,
}

/// The result of following a path.
enum Found {
    Module(usize),
    /// An item: the module that defines it, and its name.
    Item(usize, String),
}
