//! The Verilator models, by their parameters.

use std::ffi::c_void;

/// Inputs of one cycle; as in `shim.cpp`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Inputs {
    pub(crate) now: u64,
    pub(crate) arrival: u64,
    pub(crate) data: [u8; 32],
    pub(crate) keep: u32,
    pub(crate) axil_address: u32,
    pub(crate) axil_data: u32,
    pub(crate) rst: bool,
    pub(crate) valid: bool,
    pub(crate) last: bool,
    pub(crate) bad: bool,
    pub(crate) ready: bool,
    pub(crate) axil_write: bool,
    pub(crate) axil_read: bool,
    pub(crate) axil_strobe: u8,
    pub(crate) axil_ready: bool,
    padding: [u8; 7],
}

/// Outputs of one cycle, before its clock edge; as in `shim.cpp`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Outputs {
    pub(crate) arrival: u64,
    pub(crate) deadline: u64,
    pub(crate) data: [u8; 32],
    pub(crate) keep: u32,
    pub(crate) axil_data: u32,
    pub(crate) segments: u16,
    pub(crate) mss: u16,
    pub(crate) ready: bool,
    pub(crate) valid: bool,
    pub(crate) last: bool,
    pub(crate) kind: u8,
    pub(crate) reason: u8,
    pub(crate) network: u8,
    pub(crate) transport: u8,
    pub(crate) payload: u8,
    pub(crate) busy: bool,
    pub(crate) deadline_valid: bool,
    pub(crate) axil_taken: bool,
    pub(crate) axil_written: bool,
    pub(crate) axil_read: bool,
    padding: [u8; 3],
}

/// Bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bytes a cycle.
    Bits64,
    /// 16 bytes a cycle.
    Bits128,
    /// 32 bytes a cycle.
    Bits256,
}

impl Width {
    /// Bytes of a word.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits64 => 8,
            Self::Bits128 => 16,
            Self::Bits256 => 32,
        }
    }
}

/// One set of parameters: `build.rs` has the same list.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Bits of a word.
    pub width: Width,
    /// Flows in the store.
    pub flows: usize,
    functions: Functions,
}

#[derive(Clone, Copy, Debug)]
struct Functions {
    new: unsafe extern "C" fn() -> *mut c_void,
    delete: unsafe extern "C" fn(*mut c_void),
    cycle: unsafe extern "C" fn(*mut c_void, *const Inputs, *mut Outputs),
}

macro_rules! models {
    ($($cfg:ident $name:ident: $width:ident, $flows:literal, $new:ident, $delete:ident, $cycle:ident;)*) => {
        unsafe extern "C" {
            $(
                #[cfg($cfg)]
                fn $new() -> *mut c_void;
                #[cfg($cfg)]
                fn $delete(model: *mut c_void);
                #[cfg($cfg)]
                fn $cycle(model: *mut c_void, inputs: *const Inputs, outputs: *mut Outputs);
            )*
        }

        impl Model {
            /// Every model, including the one with a small store.
            pub const WITH_SMALL: &'static [Self] = &[$(#[cfg($cfg)] Self::$name),*];
            $(
                #[cfg($cfg)]
                #[doc = concat!("A ", stringify!($width), " module of ", $flows, " flows.")]
                pub const $name: Self = Self {
                    width: Width::$width,
                    flows: $flows,
                    functions: Functions { new: $new, delete: $delete, cycle: $cycle },
                };
            )*
        }
    };
}

impl Model {
    /// Every model whose store is large enough for all segments that the engine holds.
    pub const ALL: &'static [Self] = match Self::WITH_SMALL {
        [others @ .., last] if last.flows == 2 => others,
        all => all,
    };
}

models! {
    model_64_1 BITS64_FLOWS1: Bits64, 1, lro_new_64_1, lro_delete_64_1, lro_cycle_64_1;
    model_64_4 BITS64_FLOWS4: Bits64, 4, lro_new_64_4, lro_delete_64_4, lro_cycle_64_4;
    model_64_8 BITS64_FLOWS8: Bits64, 8, lro_new_64_8, lro_delete_64_8, lro_cycle_64_8;
    model_128_1 BITS128_FLOWS1: Bits128, 1, lro_new_128_1, lro_delete_128_1, lro_cycle_128_1;
    model_128_4 BITS128_FLOWS4: Bits128, 4, lro_new_128_4, lro_delete_128_4, lro_cycle_128_4;
    model_128_8 BITS128_FLOWS8: Bits128, 8, lro_new_128_8, lro_delete_128_8, lro_cycle_128_8;
    model_256_1 BITS256_FLOWS1: Bits256, 1, lro_new_256_1, lro_delete_256_1, lro_cycle_256_1;
    model_256_4 BITS256_FLOWS4: Bits256, 4, lro_new_256_4, lro_delete_256_4, lro_cycle_256_4;
    model_64_2 SMALL: Bits64, 2, lro_new_64_2, lro_delete_64_2, lro_cycle_64_2;
}

/// A model in simulation.
pub(crate) struct Simulation {
    model: *mut c_void,
    functions: Functions,
}

impl Simulation {
    pub(crate) fn new(model: Model) -> Self {
        let functions = model.functions;
        // SAFETY: the function creates a new object, and takes no arguments.
        Self { model: unsafe { (functions.new)() }, functions }
    }

    /// Runs one cycle.
    pub(crate) fn cycle(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the model lives until `self` is dropped, and only `self` uses it; both structures are laid
        // out as in `shim.cpp`, and live through the call.
        unsafe { (self.functions.cycle)(self.model, inputs, &mut outputs) };
        outputs
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // SAFETY: `new` created the model, and nothing uses it after `self`.
        unsafe { (self.functions.delete)(self.model) };
    }
}
