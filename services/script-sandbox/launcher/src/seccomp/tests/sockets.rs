//! The sockets that can be made, and the options that can be set.

use std::collections::BTreeSet;

use super::{Answer, Call, PROFILES, Profile, answer, compile, interpret, policy};

/// Options that make objects of the kernel that outlive their script, are shared with others or are
/// counted for no process; by level.
const OPTIONS_THAT_MUST_NEVER_WORK: &[(i32, &[i32])] = &[
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_ATTACH_FILTER,
            libc::SO_ATTACH_BPF,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            libc::SO_ATTACH_REUSEPORT_EBPF,
            libc::SO_DETACH_FILTER,
            libc::SO_LOCK_FILTER,
            libc::SO_SNDBUFFORCE,
            libc::SO_RCVBUFFORCE,
            libc::SO_BINDTODEVICE,
            libc::SO_MARK,
            libc::SO_PEERSEC,
            libc::SO_PEERGROUPS,
            libc::SO_TIMESTAMPING,
            libc::SO_BUSY_POLL,
            libc::SO_ZEROCOPY,
            libc::SO_TXTIME,
            SO_PEERPIDFD,
        ],
    ),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_CONGESTION,
            libc::TCP_MD5SIG,
            libc::TCP_REPAIR,
            libc::TCP_FASTOPEN,
            libc::TCP_ULP,
            TCP_ZEROCOPY_RECEIVE,
        ],
    ),
    (
        libc::IPPROTO_IP,
        &[libc::IP_ADD_MEMBERSHIP, IPT_SO_SET_REPLACE],
    ),
    (
        libc::IPPROTO_IPV6,
        &[libc::IPV6_ADD_MEMBERSHIP, IPT_SO_SET_REPLACE],
    ),
    (libc::SOL_NETLINK, &[1]),
    (libc::SOL_ALG, &[libc::ALG_SET_KEY]),
];

const SO_PEERPIDFD: i32 = 77;
const TCP_ZEROCOPY_RECEIVE: i32 = 35;
const IPT_SO_SET_REPLACE: i32 = 64;

#[test]
fn options_that_make_objects_of_the_kernel_are_refused_on_every_profile() {
    let refused = Answer::Errno(libc::ENOPROTOOPT);
    for profile in PROFILES {
        let program = compile(&policy::policy(profile));
        let names = OPTIONS_THAT_MUST_NEVER_WORK.iter();
        for (level, name) in names.flat_map(|(level, names)| names.iter().map(move |n| (level, n)))
        {
            for call in [libc::SYS_setsockopt, libc::SYS_getsockopt] {
                for upper in [0, 1 << 32, u64::MAX << 32] {
                    let arguments = [3, *level as u64 | upper, *name as u64 | upper];
                    let answer = interpret(&program, &Call::native(call, &arguments));
                    assert_eq!(answer, refused, "{level} {name}");
                }
            }
        }
    }
}

#[test]
fn of_all_options_few_can_be_set_and_some_more_asked() {
    let program = compile(&policy::policy(PROFILES[0]));
    let allowed = |call: i64| {
        let all = (-1..300_i32).flat_map(|level| (-1..300_i32).map(move |name| (level, name)));
        let is_allowed = |&(level, name): &(i32, i32)| {
            let arguments = [3, level as u32 as u64, name as u32 as u64];
            interpret(&program, &Call::native(call, &arguments)) == Answer::Allow
        };
        all.filter(is_allowed).collect::<BTreeSet<_>>()
    };
    let (settable, askable) = (allowed(libc::SYS_setsockopt), allowed(libc::SYS_getsockopt));
    assert_eq!((settable.len(), askable.len()), (22, 30));
    assert!(settable.is_subset(&askable));
    assert!(settable.contains(&(libc::SOL_SOCKET, libc::SO_REUSEADDR)));
    assert!(!settable.contains(&(libc::SOL_SOCKET, libc::SO_ERROR)));
    // The kernel sees the lower halves, and so does the filter.
    let odd = [3, 1 << 40 | 1, 1 << 63 | libc::SO_REUSEADDR as u64];
    let answer = interpret(&program, &Call::native(libc::SYS_setsockopt, &odd));
    assert_eq!(answer, Answer::Allow);
}

#[test]
fn sockets_are_plain_and_only_in_a_network_of_ones_own() {
    let check = |profile: Profile, arguments: [i32; 3], expected: bool| {
        let arguments = arguments.map(|value| value as u64);
        let allowed = answer(profile, libc::SYS_socket, &arguments) == Answer::Allow;
        assert_eq!(allowed, expected, "{arguments:?}");
    };
    let own = PROFILES[0];
    check(own, [libc::AF_INET, libc::SOCK_STREAM, 0], true);
    check(
        own,
        [
            libc::AF_INET6,
            libc::SOCK_DGRAM | libc::SOCK_NONBLOCK,
            libc::IPPROTO_UDP,
        ],
        true,
    );
    check(
        own,
        [libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP],
        false,
    );
    check(own, [libc::AF_INET, libc::SOCK_STREAM, 262], false);
    for family in (0..46).filter(|family| ![2, 10].contains(family)) {
        for kind in [
            libc::SOCK_STREAM,
            libc::SOCK_DGRAM,
            libc::SOCK_RAW,
            libc::SOCK_SEQPACKET,
        ] {
            check(own, [family, kind, 0], false);
        }
    }
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        check(PROFILES[1], [family, libc::SOCK_STREAM, 0], false);
    }
}

#[test]
fn attempts_to_use_a_network_are_told_and_nothing_else_but_watches_is() {
    let local = [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_ALG];
    for profile in PROFILES {
        let entries = policy::policy(profile);
        let program = compile(&entries);
        for family in 0..64 {
            for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW] {
                let arguments = [family as u64, kind as u64, 0];
                let call = Call::native(libc::SYS_socket, &arguments);
                let reported = interpret(&program, &call) == Answer::Tell;
                let expected = profile.reports_network && !local.contains(&family);
                assert_eq!(reported, expected, "{profile:?} {family}");
            }
        }
        for number in (0..600).filter(|number| i64::from(*number) != libc::SYS_socket) {
            let call = Call::native(number.into(), &[2, 1, 0]);
            let reported = interpret(&program, &call) == Answer::Tell;
            let adds = i64::from(number) == libc::SYS_epoll_ctl;
            assert_eq!(reported, adds && profile.counts_watches, "{number}");
        }
    }
}

#[test]
fn e81_local_sockets_are_unnamed_pairs_that_stay_connected() {
    let kinds = [
        (libc::SOCK_STREAM, true),
        (libc::SOCK_SEQPACKET, true),
        (libc::SOCK_DGRAM, false),
        (libc::SOCK_RAW, false),
    ];
    for profile in PROFILES {
        for (kind, expected) in kinds {
            for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK] {
                let arguments = [libc::AF_UNIX, kind | flags, 0].map(|value| value as u64);
                let pair = answer(profile, libc::SYS_socketpair, &arguments);
                assert_eq!(pair == Answer::Allow, expected, "{arguments:?}");
                let one = answer(profile, libc::SYS_socket, &arguments);
                assert!(matches!(one, Answer::Errno(_)), "{arguments:?}");
            }
        }
    }
}
