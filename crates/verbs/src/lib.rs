//! `libibverbs.so.1`.
pub mod abi;
