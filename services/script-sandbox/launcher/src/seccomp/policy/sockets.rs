//! Sockets: the kinds that can be made, and the options that can be set.

use libc::*;

use super::{Answer, Condition, Entry, LOWER_HALF, Profile};

/// Calls that give a socket an address or follow one.
const ADDRESSED_SOCKET_CALLS: [c_long; 5] =
    [SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect];

// The two timeouts in the form that holds every year; the C library for this machine does not name it.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// The options that may be set and read, by level: times and modes of the socket itself. Not:
/// filters, which the kernel compiles into a pool that the whole machine shares (the pool of the
/// system call filters, so that a script that fills it keeps every process from being confined),
/// protocols and algorithms that are loaded as modules, groups, routes and tables of a network, and
/// zero-copy and time-stamp queues, which hold memory that is not counted.
#[rustfmt::skip] // a level per paragraph
const SETTABLE: &[(c_int, &[c_int])] = &[
    (SOL_SOCKET, &[
        SO_REUSEADDR, SO_BROADCAST, SO_KEEPALIVE, SO_OOBINLINE, SO_LINGER, SO_REUSEPORT, SO_RCVLOWAT,
        SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW,
    ]),
    (IPPROTO_TCP, &[
        TCP_NODELAY, TCP_CORK, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT,
        TCP_DEFER_ACCEPT,
    ]),
    (IPPROTO_IPV6, &[IPV6_V6ONLY, IPV6_UNICAST_HOPS]),
    (IPPROTO_IP, &[IP_TOS, IP_TTL]),
];

/// The options that may only be read. Larger buffers are memory that no limit of a process counts.
#[rustfmt::skip] // a level per paragraph
const ASKABLE: &[(c_int, &[c_int])] = &[
    (SOL_SOCKET, &[
        SO_TYPE, SO_ERROR, SO_PEERCRED, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN, SO_SNDBUF, SO_RCVBUF,
    ]),
];

/// Internet sockets in a script's own network, and unnamed local pairs.
///
/// No local socket with a name: a path leads to the sockets of the host beneath every tree that a
/// script sees, and neither a read-only mount nor a network namespace nor Landlock prevents
/// connecting to them. A pair of datagram sockets can get another peer and send to any name, so
/// pairs are of the kinds that stay connected for life.
pub(super) fn entries(profile: Profile) -> Vec<Entry> {
    // The type's low four bits hold the kind, the others are flags.
    const TYPE_BITS: u64 = 0xf;
    let is = |argument: u32, value: i32| Condition::is(argument, value as u64);
    let kind = |kind: i32| Condition::masked(1, TYPE_BITS, kind as u64);
    let connected = [SOCK_STREAM, SOCK_SEQPACKET];
    let pairs = connected.map(|each| vec![is(0, AF_UNIX), kind(each), is(2, 0)]);
    let socket = if profile.reports_network {
        reported_sockets(profile)
    } else if profile.own_network {
        let mut any = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let plain = [(SOCK_STREAM, IPPROTO_TCP), (SOCK_DGRAM, IPPROTO_UDP)];
            for (each, protocol) in plain {
                any.push(vec![is(0, family), kind(each), is(2, 0)]);
                any.push(vec![is(0, family), kind(each), is(2, protocol)]);
            }
        }
        Entry::allowed_if(SYS_socket, any, EAFNOSUPPORT)
    } else {
        Entry::allowed(SYS_socket, false)
    };
    let mut entries = vec![socket, Entry::allowed_if(SYS_socketpair, pairs, EPERM)];
    let addressed = ADDRESSED_SOCKET_CALLS.into_iter();
    entries.extend(addressed.map(|number| Entry::allowed(number, profile.own_network)));
    entries.extend(options());
    entries
}

/// The rule for `socket` where attempts to use a network are reported: every family counts as one,
/// except the families for this machine's own kernel and processes.
fn reported_sockets(profile: Profile) -> Entry {
    let errno = if profile.own_network {
        EAFNOSUPPORT
    } else {
        EPERM
    };
    let local = [AF_UNIX, AF_NETLINK, AF_ALG];
    let refused = |family| {
        let is_family = Condition::is(0, family as u64);
        (vec![is_family], Answer::Errno(errno))
    };
    Entry {
        number: SYS_socket,
        cases: local.map(refused).into(),
        otherwise: Answer::Tell,
    }
}

/// Setting and reading options, by level and name. The kernel reads both as 32-bit numbers and
/// ignores the upper halves of the registers, so the filter ignores them, too.
fn options() -> [Entry; 2] {
    let is = |argument: u32, value: c_int| {
        Condition::masked(argument, LOWER_HALF, u64::from(value as u32))
    };
    let entry = |number: c_long, allowed: &[&[(c_int, &[c_int])]]| {
        let levels = allowed.iter().flat_map(|levels| levels.iter());
        let options =
            levels.flat_map(|&(level, names)| names.iter().map(move |&name| (level, name)));
        let any = options.map(|(level, name)| vec![is(1, level), is(2, name)]);
        Entry::allowed_if(number, any, ENOPROTOOPT)
    };
    [
        entry(SYS_setsockopt, &[SETTABLE]),
        entry(SYS_getsockopt, &[SETTABLE, ASKABLE]),
    ]
}
