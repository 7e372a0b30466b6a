//! The properties of each method, read from descriptor sets.

use std::{collections::HashMap, sync::Arc, time::Duration};

use contracts::access::Access;
use prost::Message;
use prost_types::FileDescriptorSet;

/// One method.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    /// `package.Service/Method`.
    pub(crate) full_name: Arc<str>,
    /// `package.Service`.
    pub(crate) service: Arc<str>,
    /// Whether it answers with a stream.
    pub(crate) streams: bool,
    /// Whether its request or its answer is a stream.
    pub(crate) long: bool,
    /// Whether it belongs to the server itself: health and reflection.
    pub(crate) infrastructure: bool,
    /// The facts that the contract states; `None` for methods of other packages.
    pub(crate) access: Option<&'static Access>,
    /// Whether it is answered while the server drains.
    pub(crate) while_draining: bool,
    /// Its own timeout.
    pub(crate) timeout: Option<Duration>,
    /// The largest message that its service reads, where the server reads larger ones.
    pub(crate) max_request: usize,
}

/// Whether a method (`package.Service/Method`) reports the health of the server.
pub(crate) fn is_health(method: &str) -> bool {
    method.starts_with("grpc.health.v1.Health/")
}

/// The methods of a server by request path.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    by_path: HashMap<String, Method>,
}

impl Methods {
    /// Reads all methods of the sets, and the methods of health and reflection.
    pub(crate) fn read(
        sets: &[&[u8]],
        timeouts: &HashMap<String, Duration>,
        max_requests: &HashMap<String, usize>,
    ) -> Self {
        let own = [
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let mut methods = Self::default();
        for (set, infrastructure) in own
            .iter()
            .map(|set| (*set, true))
            .chain(sets.iter().map(|set| (*set, false)))
        {
            // A set that cannot be read is found when reflection is built from it.
            let files = FileDescriptorSet::decode(set)
                .map(|set| set.file)
                .unwrap_or_default();
            for file in &files {
                methods.add(file, infrastructure, timeouts, max_requests);
            }
        }
        methods
    }

    /// Finds the method of a request path.
    pub(crate) fn find(&self, path: &str) -> Option<&Method> {
        self.by_path.get(path)
    }

    fn add(
        &mut self,
        file: &prost_types::FileDescriptorProto,
        infrastructure: bool,
        timeouts: &HashMap<String, Duration>,
        max_requests: &HashMap<String, usize>,
    ) {
        for service in &file.service {
            let service_name: Arc<str> = format!("{}.{}", file.package(), service.name())
                .trim_start_matches('.')
                .into();
            for method in &service.method {
                let full_name: Arc<str> = format!("{service_name}/{}", method.name()).into();
                let timeout = timeouts.get(&*full_name).copied();
                let max_request = max_requests.get(&*service_name).copied();
                let access = contracts::access::of(&full_name);
                self.by_path.insert(
                    format!("/{full_name}"),
                    Method {
                        full_name,
                        service: service_name.clone(),
                        streams: method.server_streaming(),
                        long: method.server_streaming() || method.client_streaming(),
                        infrastructure,
                        while_draining: access.is_some_and(Access::while_draining),
                        access,
                        timeout,
                        max_request: max_request.unwrap_or(usize::MAX),
                    },
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_limits_are_known() {
        let timeouts = HashMap::from([(
            "grpc.health.v1.Health/Check".to_owned(),
            Duration::from_secs(1),
        )]);
        let methods = Methods::read(
            &[contracts::FILE_DESCRIPTOR_SET, b"nonsense"],
            &timeouts,
            &HashMap::new(),
        );
        let check = methods.find("/grpc.health.v1.Health/Check").unwrap();
        assert_eq!(
            (check.streams, check.timeout),
            (false, Some(Duration::from_secs(1)))
        );
        assert!(
            methods
                .find("/grpc.health.v1.Health/Watch")
                .unwrap()
                .streams
        );
        assert!(methods.find("//grpc.health.v1.Health/Watch").is_none());
    }
}
