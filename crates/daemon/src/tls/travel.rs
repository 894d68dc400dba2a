//! TLS sessions on their way to another process.

use howdah_pooler::parcel::{Freight, Parcel};
use howdah_pooler::place;

use super::TlsSession;

/// Packs clients' sessions. A client whose session can't be packed (because it has sent
/// close_notify) is dropped. Returns a reason for each dropped client.
pub fn pack_sessions(freight: &mut Freight) -> Vec<String> {
    let mut lost = Vec::new();
    freight.parcels.retain_mut(|(_, parcel)| {
        let Parcel::Client(client) = parcel else {
            return true;
        };
        let session = client.socket.take_session::<Box<dyn TlsSession>>();
        match session.map(|mut session| session.pack()) {
            None => true,
            Some(Ok(bytes)) => {
                client.socket.set_packed_session(bytes);
                true
            }
            Some(Err(why)) => {
                let (database, user) = (&client.database, &client.user);
                let place = place::whole(&client.ends.remote);
                lost.push(format!(
                    "{database}/{user}@{place} could not go to the new process: {why}"
                ));
                false
            }
        }
    });
    lost
}
