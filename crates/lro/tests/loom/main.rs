//! All interleavings of objects that come back to their recycler from other threads:
//!
//!     RUSTFLAGS='--cfg loom' cargo test --release --package nichrome-lro --test loom
//!
//! `recycle.rs` is compiled here with loom's primitives.
#![cfg(loom)]
#![allow(dead_code, reason = "the model uses a part of the file")]

#[path = "../../src/recycle.rs"]
mod recycle;

mod sync {
    pub(crate) use loom::sync::{Arc, Mutex};
}

use loom::thread;
use recycle::{Recycle, Recycled, Recycler};

/// True while the object is lent.
struct Item(bool);

impl Recycle for Item {
    fn clear(&mut self) {
        self.0 = false;
    }
}

#[test]
fn each_object_comes_back_clear_and_once() {
    loom::model(|| {
        let mut recycler = Recycler::new([Item(false), Item(false)].into_iter());
        let threads = [(); 2].map(|()| {
            let mut object = recycler.take().unwrap();
            object.0 = true;
            let lent = Recycled::lend(object);
            thread::spawn(move || drop(lent))
        });
        let early = recycler.take();
        for thread in threads {
            thread.join().unwrap();
        }
        let late: Vec<_> = std::iter::from_fn(|| recycler.take()).collect();
        assert!(late.iter().chain(&early).all(|object| !object.0));
        assert_eq!(late.len() + usize::from(early.is_some()), 2);
    });
}
