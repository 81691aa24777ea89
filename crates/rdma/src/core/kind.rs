//! The kinds of object that a [`Handle`](super::slab::Handle) refers to.

/// A protection domain.
#[derive(Debug)]
pub enum Domain {}
/// A memory region or window.
#[derive(Debug)]
pub enum Key {}
/// A completion queue.
#[derive(Debug)]
pub enum Cq {}
/// A shared receive queue.
#[derive(Debug)]
pub enum Srq {}
/// An XRC domain.
#[derive(Debug)]
pub enum Xrc {}
/// A queue pair.
#[derive(Debug)]
pub enum Qp {}
/// An address handle.
#[derive(Debug)]
pub enum Address {}
