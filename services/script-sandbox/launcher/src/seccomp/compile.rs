//! From the policy to the kernel's filter language.
//!
//! The program is one block per call, in the order of the policy: compare the number, jump over the
//! block if it differs, otherwise answer. The kernel caches the numbers that are always allowed, so
//! the length of the chain costs them nothing.

use libc::sock_filter;

use super::policy::{Answer, Condition, Entry, UNNAMED};

/// The tag of the machine's own call interface.
pub const NATIVE_ARCH: u32 = 0xc000_003e;

/// The bit that marks a number as one of the x32 interface.
pub const X32_BIT: u32 = 0x4000_0000;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

// Offsets in the kernel's `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Compiles a policy.
pub fn compile(entries: &[Entry]) -> Vec<sock_filter> {
    let mut program = vec![
        statement(LOAD, ARCH),
        jump(JUMP_IF_EQUAL, NATIVE_ARCH, 1, 0),
        answer(Answer::Kill),
        statement(LOAD, NUMBER),
        jump(JUMP_IF_AT_LEAST, X32_BIT, 0, 1),
        answer(Answer::Kill),
    ];
    for entry in entries {
        let block = block(entry);
        let length = u8::try_from(block.len()).expect("the policy keeps blocks below 256 steps");
        program.push(jump(JUMP_IF_EQUAL, entry.number as u32, 0, length));
        program.extend(block);
    }
    program.push(answer(UNNAMED));
    program
}

fn block(entry: &Entry) -> Vec<sock_filter> {
    let cases = entry.cases.iter();
    let mut block: Vec<sock_filter> = cases
        .flat_map(|(conditions, answer)| alternative(conditions, *answer))
        .collect();
    block.push(answer(entry.otherwise));
    block
}

/// The tests of one alternative: the first that fails jumps past its answer.
fn alternative(conditions: &[Condition], then: Answer) -> Vec<sock_filter> {
    let halves: Vec<(u32, u32, u32)> = conditions.iter().flat_map(halves).collect();
    let steps = |mask: u32| if mask == u32::MAX { 2 } else { 3 };
    let mut left: usize = halves.iter().map(|&(_, mask, _)| steps(mask)).sum();
    let mut program = Vec::new();
    for (offset, mask, value) in halves {
        program.push(statement(LOAD, offset));
        if mask != u32::MAX {
            program.push(statement(AND, mask));
        }
        left -= steps(mask);
        let past_answer = u8::try_from(left + 1).expect("an alternative has few conditions");
        program.push(jump(JUMP_IF_EQUAL, value, 0, past_answer));
    }
    program.push(answer(then));
    program
}

/// The 32-bit halves of an argument that a condition tests: offset, mask, value.
fn halves(condition: &Condition) -> Vec<(u32, u32, u32)> {
    let offset = ARGUMENTS + 8 * condition.argument;
    let low = (offset, condition.mask as u32, condition.value as u32);
    let high = (
        offset + 4,
        (condition.mask >> 32) as u32,
        (condition.value >> 32) as u32,
    );
    [low, high]
        .into_iter()
        .filter(|&(_, mask, _)| mask != 0)
        .collect()
}

fn answer(answer: Answer) -> sock_filter {
    let value = match answer {
        Answer::Allow => libc::SECCOMP_RET_ALLOW,
        Answer::Errno(errno) => libc::SECCOMP_RET_ERRNO | (errno as u32 & libc::SECCOMP_RET_DATA),
        Answer::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        Answer::Tell => libc::SECCOMP_RET_USER_NOTIF,
    };
    statement(RETURN, value)
}

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}
