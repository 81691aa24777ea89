//! Declares structures of C together with what the layout test needs to know of them.

/// A structure's name in C, its size, and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Without `struct`.
    pub name: &'static str,
    /// In bytes.
    pub size: usize,
    /// In the order of the declaration.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in C.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
}

/// Declares structures with all fields public, and `LAYOUTS`.
macro_rules! abi {
    ($($(#[$meta:meta])* struct $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types, non_snake_case, missing_docs, reason = "names and meanings are those of infiniband/verbs.h")]
            pub struct $name { $(pub $field: $type),* }
        )*

        pub(super) const LAYOUTS: &[$crate::header::Layout] = &[$($crate::header::Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            fields: &[$($crate::header::Field {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
            }),*],
        }),*];
    };
}
pub(crate) use abi;
