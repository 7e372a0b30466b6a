//! Sockets: which can be made, and what can be set on them.

use libc::{EAFNOSUPPORT, ENOPROTOOPT, EPERM, c_int, c_long};

use super::{Answer, Condition, Entry, LOWER_HALF, Profile};

/// Calls that give a socket an address or follow one.
const ADDRESSED_SOCKET_CALLS: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
];

// The two timeouts in the form that holds every year; the C library for this machine does not name it.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// What may be set and asked, by level: times and modes of the socket itself. Not: filters,
/// which the kernel compiles into a store that the whole machine shares (that of the system call
/// filters, so that a script that fills it keeps everybody from being confined), protocols and
/// algorithms that are loaded as modules, groups, routes and tables of a network, and zero-copy and
/// time-stamp queues, which hold memory that is not counted.
const SETTABLE: &[(c_int, &[c_int])] = &[
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_REUSEADDR,
            libc::SO_BROADCAST,
            libc::SO_KEEPALIVE,
            libc::SO_OOBINLINE,
            libc::SO_LINGER,
            libc::SO_REUSEPORT,
            libc::SO_RCVLOWAT,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            SO_RCVTIMEO_NEW,
            SO_SNDTIMEO_NEW,
        ],
    ),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_NODELAY,
            libc::TCP_CORK,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_KEEPCNT,
            libc::TCP_USER_TIMEOUT,
            libc::TCP_DEFER_ACCEPT,
        ],
    ),
    (
        libc::IPPROTO_IPV6,
        &[libc::IPV6_V6ONLY, libc::IPV6_UNICAST_HOPS],
    ),
    (libc::IPPROTO_IP, &[libc::IP_TOS, libc::IP_TTL]),
];

/// What may only be asked.
const ASKABLE: &[(c_int, &[c_int])] = &[(
    libc::SOL_SOCKET,
    &[
        libc::SO_TYPE,
        libc::SO_ERROR,
        libc::SO_PEERCRED,
        libc::SO_ACCEPTCONN,
        libc::SO_PROTOCOL,
        libc::SO_DOMAIN,
        // Larger buffers are memory that no limit of a process counts.
        libc::SO_SNDBUF,
        libc::SO_RCVBUF,
    ],
)];

/// Internet sockets in a network of one's own, and unnamed local pairs.
///
/// No local socket with a name: a path leads to the sockets of the host beneath every tree that a
/// script sees, which neither a read-only mount nor a network of one's own nor Landlock keeps from
/// being connected to. A pair of datagram sockets can be given another peer and send to any name, so
/// pairs are of the kinds that stay connected for life.
pub(super) fn entries(profile: Profile) -> Vec<Entry> {
    // The type's low four bits say what it is, the others are flags.
    const TYPE_BITS: u64 = 0xf;
    let is = |argument: u32, value: i32| Condition::is(argument, value as u64);
    let kind = |kind: i32| Condition::masked(1, TYPE_BITS, kind as u64);
    let connected = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    let pairs = connected.map(|each| vec![is(0, libc::AF_UNIX), kind(each), is(2, 0)]);
    let socket = if profile.tells_network {
        reported_sockets(profile)
    } else if profile.own_network {
        let mut any = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let plain = [
                (libc::SOCK_STREAM, libc::IPPROTO_TCP),
                (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
            ];
            for (each, protocol) in plain {
                any.push(vec![is(0, family), kind(each), is(2, 0)]);
                any.push(vec![is(0, family), kind(each), is(2, protocol)]);
            }
        }
        Entry::allowed_if(libc::SYS_socket, any, EAFNOSUPPORT)
    } else {
        Entry::allowed(libc::SYS_socket, false)
    };
    let mut entries = vec![
        socket,
        Entry::allowed_if(libc::SYS_socketpair, pairs, EPERM),
    ];
    let addressed = ADDRESSED_SOCKET_CALLS.iter();
    entries.extend(addressed.map(|&number| Entry::allowed(number, profile.own_network)));
    entries.extend(options());
    entries
}

/// The rule for `socket` where attempts to use a network are reported: every family is one but those
/// that speak to this machine's own kernel and processes.
fn reported_sockets(profile: Profile) -> Entry {
    let errno = if profile.own_network {
        EAFNOSUPPORT
    } else {
        EPERM
    };
    let local = [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_ALG];
    let refused = |family| {
        let is_family = Condition::is(0, family as u64);
        (vec![is_family], Answer::Errno(errno))
    };
    Entry {
        number: libc::SYS_socket,
        cases: local.map(refused).into(),
        otherwise: Answer::Tell,
    }
}

/// Setting and asking options, by level and name. The kernel takes both as 32-bit numbers and does
/// not look at the upper halves of the registers, so neither does the filter.
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
        entry(libc::SYS_setsockopt, &[SETTABLE]),
        entry(libc::SYS_getsockopt, &[SETTABLE, ASKABLE]),
    ]
}
