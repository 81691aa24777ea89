//! The transports of a device: one line each.

use super::Config;
use crate::core::queue_pair::QueuePair;
use crate::roce::Connection;
use crate::transport::{Endpoint, Environment, Shared};

/// Makes the enum of endpoints, what they share, and the two directions between a transport's own type and the enum. The
/// first transport is that of new queue pairs.
macro_rules! transports {
    ($($(#[$meta:meta])* $Name:ident, $shared:ident: $Endpoint:ty;)*) => {
        /// A queue pair on its transport.
        pub(super) enum Transport {
            $($(#[$meta])* $Name($Endpoint),)*
        }

        /// What the queue pairs of each transport share.
        pub(super) struct Transports {
            $($(#[$meta])* pub(super) $shared: <$Endpoint as Endpoint>::Shared,)*
        }

        impl Transports {
            pub(super) fn new(environment: &Environment, config: &Config) -> Self {
                Self { $($(#[$meta])* $shared: <$Endpoint as Member>::share(environment, config),)* }
            }
        }

        $($(#[$meta])* impl AsRef<<$Endpoint as Endpoint>::Shared> for Transports {
            fn as_ref(&self) -> &<$Endpoint as Endpoint>::Shared {
                &self.$shared
            }
        })*

        $($(#[$meta])* impl Member for $Endpoint {
            #[inline]
            fn of(transport: &mut Transport) -> Option<&mut Self> {
                match transport {
                    Transport::$Name(endpoint) => Some(endpoint),
                    #[allow(unreachable_patterns, reason = "there may be one transport only")]
                    _ => None,
                }
            }

            fn into_transport(self) -> Transport {
                Transport::$Name(self)
            }

            #[inline]
            fn shared_mut(all: &mut Transports) -> &mut Self::Shared {
                &mut all.$shared
            }

            fn share(environment: &Environment, config: &Config) -> Self::Shared {
                let config: &<Self::Shared as Shared>::Config = config.as_ref();
                Self::Shared::new(environment, config.clone())
            }
        })*

        /// Evaluates an expression for the endpoint of a transport, and what its kind shares.
        macro_rules! for_endpoint {
            ($transport:expr, |$endpoint:ident| $call:expr) => {
                match $transport {
                    $($(#[$meta])* Transport::$Name($endpoint) => $call,)*
                }
            };
            ($transport:expr, $all:expr, |$endpoint:ident, $its:ident| $call:expr) => {
                match $transport {
                    $($(#[$meta])* Transport::$Name($endpoint) => {
                        let $its = &mut $all.$shared;
                        $call
                    })*
                }
            };
        }

        /// Evaluates an expression for each transport in turn.
        macro_rules! for_each_transport {
            (&$all:expr, |$its:ident, $Type:ident| $call:expr) => {
                $($(#[$meta])* {
                    type $Type = $Endpoint;
                    let $its = &$all.$shared;
                    $call
                })*
            };
            (&mut $all:expr, |$its:ident, $Type:ident| $call:expr) => {
                $($(#[$meta])* {
                    type $Type = $Endpoint;
                    let $its = &mut $all.$shared;
                    $call
                })*
            };
        }
    };
}

/// An endpoint as one of the device's transports.
pub(super) trait Member: Endpoint {
    /// The endpoint, if it is of this type.
    fn of(transport: &mut Transport) -> Option<&mut Self>;
    fn into_transport(self) -> Transport;
    fn shared_mut(all: &mut Transports) -> &mut Self::Shared;
    fn share(environment: &Environment, config: &Config) -> Self::Shared;
}

transports! {
    Roce, roce: crate::roce::RoceQp;
    Star, star: crate::star::StarQp;
    #[cfg(test)]
    Framed, framed: super::framed::FramedQp;
}

impl Transport {
    /// A new queue pair, or one that was reset, before anything else is negotiated.
    pub(super) fn new(qp: QueuePair, transports: &Transports) -> Self {
        Self::Roce(Connection::new(qp, &transports.roce))
    }

    #[inline]
    pub(super) fn qp(&self) -> &QueuePair {
        for_endpoint!(self, |endpoint| endpoint.qp())
    }

    #[inline]
    pub(super) fn qp_mut(&mut self) -> &mut QueuePair {
        for_endpoint!(self, |endpoint| endpoint.qp_mut())
    }
}

#[expect(clippy::single_component_path_imports, reason = "macros of this file, for the others")]
pub(super) use {for_each_transport, for_endpoint};
