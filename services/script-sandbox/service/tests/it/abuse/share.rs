//! Programs that want more than their share, or want to be counted wrongly.

use std::{fs, time::Duration};

use contracts::tavern::sandbox::v1::ExecuteRequest;

use sandbox_engine::domain::isolation::MemoryEnforcement;

use crate::{
    oracle::left_behind,
    rounds::everywhere,
    support::{expect_class, expect_output, python, stdout},
};

#[test]
fn e20_many_processes_get_no_more_than_one_script_gets() {
    everywhere(async |host| {
        if host.sandbox.report().enforcement == MemoryEnforcement::Sampled {
            // Without cgroups the kernel shares among processes.
            return;
        }
        // The part that each gets depends on other programs here; that no group is preferred does
        // not.
        let (one, other) = (host.sleeper("a").await, host.sleeper("b").await);
        let (first, second) = (share_of(one.process()), share_of(other.process()));
        assert_ne!(first.0, second.0, "each script has a group of its own");
        assert_eq!(first.1, second.1);
        one.end().await;
        other.end().await;
    });
}

/// The cgroup of a process that shares out the processors, and its share.
fn share_of(process: u32) -> (String, String) {
    let process = process.to_string();
    let mut shares = left_behind().into_iter().filter_map(|group| {
        let members = fs::read_to_string(format!("{group}/cgroup.procs")).ok()?;
        let mut files = ["cpu.shares", "cpu.weight"].iter();
        let share = files.find_map(|name| fs::read_to_string(format!("{group}/{name}")).ok())?;
        let member = members.lines().any(|line| line == process);
        member.then_some((group, share))
    });
    shares.next_back().unwrap()
}

#[test]
fn e77_a_script_is_the_first_to_die_when_memory_is_short() {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert!(own.trim().parse::<i32>().unwrap() < 900, "{own}");
    everywhere(async |host| {
        let running = host.sleeper("").await;
        let score = format!("/proc/{}/oom_score_adj", running.process());
        let score = std::fs::read_to_string(score).unwrap();
        assert_eq!(score.trim(), "900");
        running.end().await;
    });
}

#[test]
fn e103_the_figures_are_those_of_the_whole_script() {
    let source = "
import os, time
memory = bytearray(96 << 20)
for at in range(0, len(memory), 4096): memory[at] = 1
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        while time.process_time() < 0.4: pass
        os._exit(0)
    os.waitpid(pid, 0)
while time.process_time() < 0.4: pass
print(sum(os.times()[:4]))
";
    everywhere(async |host| {
        let response = host.python(source).await;
        expect_class(&response, &["exited 0"]);
        let own: f64 = stdout(&response).trim().parse().unwrap();
        let usage = response.usage.unwrap();
        let seconds = |time: Option<prost_types::Duration>| {
            Duration::try_from(time.unwrap()).unwrap().as_secs_f64()
        };
        let (cpu, wall) = (seconds(usage.cpu_time), seconds(usage.wall_time));
        assert!(own >= 1.9, "{own}");
        // The figure of a cgroup includes the set-up of the sandbox, which is not the script's own.
        assert!((own * 0.9..own * 1.1 + 0.5).contains(&cpu), "{own} {cpu}");
        assert!(wall >= own * 0.9, "{own} {wall}");
        let memory = usage.max_memory_bytes;
        assert!((96 << 20..256 << 20).contains(&memory), "{memory}");
    });
}

#[test]
fn e23_what_is_too_large_is_refused_and_not_run() {
    let large = |change: &dyn Fn(&mut ExecuteRequest)| {
        let mut asked = python("print('ran')");
        change(&mut asked);
        asked
    };
    let table = [
        python(&"#".repeat(16 << 20)),
        python(&"#".repeat((1 << 20) + 1)),
        large(&|asked| asked.arguments = vec!["x".repeat(2 << 20)]),
        large(&|asked| asked.arguments = vec![String::new(); 10_000]),
        large(&|asked| {
            asked.environment = (0..10_000)
                .map(|number| (format!("V{number}"), String::new()))
                .collect();
        }),
    ];
    everywhere(async |host| {
        for asked in &table {
            let status = host
                .client
                .clone()
                .execute(asked.clone())
                .await
                .unwrap_err();
            let codes = [
                tonic::Code::InvalidArgument,
                tonic::Code::ResourceExhausted,
                tonic::Code::OutOfRange,
            ];
            assert!(codes.contains(&status.code()), "{status:?}");
        }
        expect_output(&host.python("print('ran')").await, "ran\n");
    });
}
