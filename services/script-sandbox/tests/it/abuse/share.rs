//! Programs that want more than their share, or to be counted wrongly.

use std::time::Duration;

use contracts::tavern::sandbox::v1::{ExecuteRequest, Limits};

use crate::{
    rounds::everywhere,
    support::{expect_class, expect_output, limited, patient, python, request, seconds, stdout},
};

#[test]
fn e20_many_processes_get_no_more_than_one_script_gets() {
    let spinning = |processes: u32| {
        let source = format!("for n in $(seq {processes}); do while :; do :; done & done; wait");
        let limits = Limits {
            wall_time: seconds(4.0),
            ..patient()
        };
        limited(request("bash", &source), limits)
    };
    everywhere(async |host| {
        let (many, few) = tokio::join!(host.run(spinning(8)), host.run(spinning(2)));
        let time = |response: &contracts::tavern::sandbox::v1::ExecuteResponse| {
            expect_class(response, &["wall"]);
            let time = response.usage.unwrap().cpu_time.unwrap();
            Duration::try_from(time).unwrap().as_secs_f64()
        };
        let (many, few) = (time(&many), time(&few));
        // The kernel shares among cgroups; without them it shares among processes.
        if host.kind == "full" {
            assert!(few >= many / 3.0, "{many} s and {few} s");
        }
    });
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
        // Setting up the sandbox is in the figure of a cgroup and is none of the script's own.
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
