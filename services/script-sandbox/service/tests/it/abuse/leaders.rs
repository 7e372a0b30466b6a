//! Processes whose first thread is dead while others live.

use std::sync::mpsc;

use crate::{
    rounds::everywhere,
    support::{eventually, expect_output, marker, python, threads_named},
};

#[test]
fn e02_threads_without_their_first_one_end_with_the_script() {
    everywhere(async |host| {
        let marker = marker();
        // The control: a process with the name is found.
        let (end, ended) = mpsc::channel::<()>();
        let named = std::thread::Builder::new().name(marker.clone());
        let waiting = named.spawn(move || ended.recv()).unwrap();
        eventually("the thread has its name", || threads_named(&marker) == 1).await;
        drop(end);
        assert!(waiting.join().unwrap().is_err());

        let source = format!(
            "
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
first = threading.main_thread().ident
def live(set_ready):
    libc.pthread_join(ctypes.c_void_p(first), None)
    libc.prctl(15, b'{marker}', 0, 0, 0)
    os.write(set_ready, b'x')
    while True: time.sleep(60)
def leave(detach):
    ready, set_ready = os.pipe()
    if os.fork() == 0:
        if detach:
            os.setsid()
            if os.fork(): os._exit(0)
        threading.Thread(target=live, args=(set_ready,)).start()
        libc.syscall(60, 0)
    os.read(ready, 1)
leave(False)
leave(True)
print('left', flush=True)
os._exit(0)
"
        );
        expect_output(&host.run(python(&source)).await, "left\n");
        assert_eq!(threads_named(&marker), 0, "{}", host.kind);
    });
}
