//! The door of a gateway that does not prove itself to its registry, where no key can exist.

use core_types::{Principal, Reach};
use futures::FutureExt;
use futures::future::BoxFuture;
use grpc_kit::{Admission, Door, Knock};
use tonic::Status;

use super::refusal;
use super::rights::MethodAccess;

/// Admits every client as [`Principal::LOCAL`], to every method but those of services among themselves. It
/// requests nothing of the registry, so that the methods of the other services answer while that is away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenDoor;

impl Door for OpenDoor {
    fn admit<'a>(&'a self, knock: Knock<'a>) -> BoxFuture<'a, Result<Admission, Status>> {
        let admitted = match MethodAccess::of(knock.method, knock.peer) {
            MethodAccess::Peers => Err(refusal::of_peers(knock.method)),
            MethodAccess::InSystem(_) => Ok(admission(Reach::Installation)),
            MethodAccess::Public | MethodAccess::Caller | MethodAccess::With(_) => {
                Ok(admission(Reach::Tenant))
            }
        };
        std::future::ready(admitted).boxed()
    }
}

fn admission(reach: Reach) -> Admission {
    Admission {
        principal: Principal::LOCAL,
        key_id: None,
        reach,
        ended: None,
        held: None,
    }
}
