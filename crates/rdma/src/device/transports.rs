//! The device's list of transports, and static dispatch to them.

use super::Config;
use super::config::Native;
#[cfg(test)]
use super::framed::FramedQp;
use crate::core::queue_pair::QueuePair;
use crate::iwarp::Stream;
use crate::roce::Connection;
use crate::transport::{Endpoint, Environment, Shared};

/// Declares the enum of endpoints, the struct of their shared states, [`Member`] for each endpoint type, and
/// the macros that dispatch on the enum.
macro_rules! transports {
    ($($(#[$meta:meta])* $Name:ident, $shared:ident: $Endpoint:ty;)*) => {
        /// A queue pair together with its transport's state.
        pub(super) enum Transport {
            $($(#[$meta])* $Name($Endpoint),)*
        }

        $($(#[$meta])* pub(super) type $Name = $Endpoint;)*

        /// The shared state of each transport.
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

        /// Evaluates an expression with the endpoint inside a [`Transport`] and, if named, its transport's
        /// shared state.
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

        /// Evaluates an expression for each transport, with its shared state and its endpoint type.
        macro_rules! for_each_transport {
            (&$all:expr, |$its:ident, $Type:ident| $call:expr) => {
                $($(#[$meta])* {
                    type $Type = $crate::device::transports::$Name;
                    let $its = &$all.$shared;
                    $call
                })*
            };
            (&mut $all:expr, |$its:ident, $Type:ident| $call:expr) => {
                $($(#[$meta])* {
                    type $Type = $crate::device::transports::$Name;
                    let $its = &mut $all.$shared;
                    $call
                })*
            };
        }
    };
}

/// Conversions between an endpoint type and [`Transport`].
pub(super) trait Member: Endpoint {
    /// Returns the endpoint if it is of this type.
    fn of(transport: &mut Transport) -> Option<&mut Self>;
    fn into_transport(self) -> Transport;
    fn shared_mut(all: &mut Transports) -> &mut Self::Shared;
    fn share(environment: &Environment, config: &Config) -> Self::Shared;
}

transports! {
    Roce, roce: crate::roce::RoceQp;
    Star, star: crate::star::StarQp;
    Iwarp, iwarp: crate::iwarp::IwarpQp;
    #[cfg(test)]
    Framed, framed: FramedQp;
}

impl Transport {
    /// Puts a new or reset queue pair on the device's own transport.
    pub(super) fn new(qp: QueuePair, native: Native, transports: &Transports) -> Self {
        match native {
            Native::Roce => Self::Roce(Connection::new(qp, &transports.roce)),
            Native::Iwarp => Self::Iwarp(Stream::new(qp, None, &transports.iwarp)),
        }
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
