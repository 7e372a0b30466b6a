//! The last steps before the script, in the process that becomes it.

use std::{
    ffi::CString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use crate::{confine, sys};
use sandbox_protocol::{
    channel::{self, ScriptDescriptors},
    plan::{Confinement, JOB_FD, LaunchPlan, Start},
    report::{At, Failure, Layer, Step},
};

/// Numbers below this one are the script's; all other descriptors are moved above first.
const FIRST_FREE: i32 = 16;

/// Confines this process and becomes the script. Returns only if that fails. `init` carries the
/// descriptor that reports calls; neither of the two survives the exec.
pub(crate) fn become_script(
    plan: &LaunchPlan,
    descriptors: ScriptDescriptors<OwnedFd>,
    init: Option<UnixStream>,
) -> Failure {
    match prepare(plan, descriptors, init) {
        Err(failure) => failure,
        Ok((command, environment)) => {
            let errno = sys::execute(&command, &environment).raw_os_error();
            // A report is one line, which the script's arguments could make too long.
            let program = plan.command.first().map_or("", |name| name);
            Failure::new(
                Layer::Exec,
                format!("starting {program}"),
                errno.unwrap_or(0),
            )
        }
    }
}

fn prepare(
    plan: &LaunchPlan,
    descriptors: ScriptDescriptors<OwnedFd>,
    init: Option<UnixStream>,
) -> Step<(Vec<CString>, Vec<CString>)> {
    rustix::process::setsid().at(Layer::Privileges, "starting a session")?;
    if let Confinement::Reduced(reduced) = &plan.confinement {
        std::env::set_current_dir(&reduced.work)
            .at(Layer::Files, "entering the working directory")?;
    }
    let command = strings(plan.command.iter().cloned())?;
    let variables = plan
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let environment = strings(variables)?;
    let init = init
        .map(|init| sys::move_above(init.into(), FIRST_FREE))
        .transpose()
        .at(Layer::Exec, "moving the descriptors")?;
    place(plan, descriptors)?;
    sys::reset_signals();
    confine::limits(&plan.limits)?;
    let profile = confine::profile(plan);
    confine::landlock(plan)?;
    sys::die_with_parent().at(Layer::Privileges, "tying the life to the init")?;
    let listener = confine::seccomp(profile)?;
    if let (Some(listener), Some(init)) = (listener, init) {
        channel::send_descriptor(&init.into(), listener.as_fd())
            .at(Layer::Seccomp, "handing over the listener")?;
    }
    confine::open_files(&plan.limits)?;
    Ok((command, environment))
}

/// Gives the script its descriptors under their numbers, and nothing else.
fn place(plan: &LaunchPlan, descriptors: ScriptDescriptors<OwnedFd>) -> Step {
    let count = match plan.start {
        Start::AtOnce | Start::Waiting => JOB_FD + 1,
        Start::AfterFiles => JOB_FD,
    };
    let moved = (0..count)
        .zip(descriptors.script)
        .map(|(number, descriptor)| Ok((sys::move_above(descriptor, FIRST_FREE)?, number)))
        .collect::<std::io::Result<Vec<_>>>()
        .at(Layer::Exec, "moving the descriptors")?;
    for (descriptor, number) in &moved {
        sys::duplicate_to(descriptor.as_fd(), *number)
            .at(Layer::Exec, "placing the descriptors")?;
    }
    sys::close_on_exec_from(count).at(Layer::Exec, "closing all other descriptors")
}

fn strings(values: impl Iterator<Item = String>) -> Step<Vec<CString>> {
    values
        .map(CString::new)
        .collect::<Result<_, _>>()
        .at(Layer::Exec, "preparing arguments and environment")
}
