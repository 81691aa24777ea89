//! A device that several threads use.

use std::sync::Arc;

use nichrome_port::Device;

/// Any device, used from any thread.
pub(crate) type SharedDevice = Arc<dyn Device + Send + Sync>;
