//! Declares C structures together with their layouts, which the layout test compares with the C compiler's.

/// The layout of a C structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name in C, without `struct`.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Fields in order of declaration.
    pub fields: &'static [Field],
}

/// A field of a C structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in C.
    pub name: &'static str,
    /// Offset in bytes from the start of the structure.
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
