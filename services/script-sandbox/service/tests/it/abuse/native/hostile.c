/* Hostile programs without an interpreter in between; the first argument says which one. A program
 * that is not ended by a limit says what it could do: `allowed` or the error of the kernel. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1L << 20)

static void say(const char *what, long result) {
  printf("%s %s\n", what, result >= 0 ? "allowed" : strerrorname_np(errno));
  fflush(stdout);
}

static void wait_for_the_end(void) {
  for (;;) pause();
}

/* Touches every page, for the kernel to hand it over. */
static void touch(char *memory, long bytes) {
  for (long at = 0; at < bytes; at += 4096) memory[at] = 1;
  wait_for_the_end();
}

static void map(int flags) {
  char *memory = mmap(NULL, 1024 * MIB, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(3);
  touch(memory, 1024 * MIB);
}

/* A shared mapping that only children touch, each a part of its own. */
static void map_among_children(void) {
  char *memory = mmap(NULL, 1024 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(3);
  for (int child = 0; child < 16; child++)
    if (fork() == 0) touch(memory + child * 64 * MIB, 64 * MIB);
  wait_for_the_end();
}

/* Hardly any memory, with a table of the kernel for every 2 MiB of addresses. */
static void fill_tables(void) {
  long bytes = 512L << 30;
  char *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) exit(3);
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  for (long at = 0; at < bytes; at += 2 * MIB) (void)*(volatile char *)(memory + at);
  wait_for_the_end();
}

/* Memory that no process maps. */
static void unmapped_memory(void) {
  int file = syscall(SYS_memfd_create, "x", 0);
  say("memfd_create", file);
  say("memfd_secret", syscall(SYS_memfd_secret, 0));
}

static void fork_for_ever(void) {
  for (;;) fork();
}

static void spin(void) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  for (;;) {}
}

/* Tasks that are neither children nor threads in the usual way. */
static int idle(void *nothing) {
  (void)nothing;
  wait_for_the_end();
  return 0;
}

static void clone_for_ever(void) {
  static char stacks[512][4096];
  for (int child = 0;; child = (child + 1) % 512)
    clone(idle, stacks[child] + 4096, CLONE_VM | CLONE_PARENT | CLONE_UNTRACED, NULL);
}

/* The program once more, out of memory and not out of a file. */
static void execute_from_memory(char *self) {
  char *arguments[] = {self, "hello", NULL}, *environment[] = {NULL};
  int own = open(self, O_RDONLY);
  syscall(SYS_execveat, own, "", arguments, environment, AT_EMPTY_PATH);
  say("execveat", -1);
}

static void attack_the_kernel(void) {
  char buffer[4096] = {0};
  /* Without a sandbox it becomes traced below, and a signal, as at the end of its child, would stop it for ever. */
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  say("io_uring_setup", syscall(425, 8, buffer));
  say("bpf", syscall(321, 0, buffer, 128));
  say("perf_event_open", syscall(298, buffer, 0, -1, -1, 0));
  say("userfaultfd", syscall(323, 1));
  say("keyctl", syscall(250, 0, -3, 1));
  say("add_key", syscall(248, "user", "x", "y", 1, -3));
  say("ptrace", syscall(101, 0, 0, 0, 0));
  say("unshare", syscall(272, CLONE_NEWUSER));
  say("clone", syscall(56, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
  say("clone3", syscall(435, buffer, 88));
  say("mount", syscall(165, "none", "/tmp", "tmpfs", 0, NULL));
  say("open_by_handle_at", syscall(304, -100, buffer, 0));
  say("process_vm_readv", syscall(310, getppid(), NULL, 0, NULL, 0, 0));
  say("setns", syscall(308, 0, 0));
  say("personality", syscall(135, 0x0040000));
  say("arch_prctl", syscall(158, 0x1011, 0));
  say("sched_setattr", syscall(314, 0, buffer, 0));
  say("ioprio_set", syscall(251, 1, 0, 1 << 13));
  say("core_scheduling", syscall(157, 62, 1, 0, 0, 0));
  say("membarrier", syscall(324, 2, 0, 0));
  say("tiocsti", syscall(16, 0, 0x5412, "x"));
  say("inotify", syscall(294, 0));
  say("flock", syscall(73, open("/usr/bin/env", O_RDONLY), 2));
  say("lease", fcntl(open("/usr/bin/env", O_RDONLY), F_SETLEASE, F_RDLCK));
  say("notify", fcntl(open("/usr/bin", O_RDONLY), F_NOTIFY, 1));
  say("owner", fcntl(0, F_SETOWN, getppid()));
  say("vsock", socket(40, SOCK_STREAM, 0));
  say("netlink", socket(AF_NETLINK, SOCK_RAW, 0));
  say("packet", socket(AF_PACKET, SOCK_RAW, 0));
  say("alg", socket(38, SOCK_SEQPACKET, 0));
  say("shmget", syscall(29, 0, 4096, 01600));
  say("mq_open", syscall(240, "q", 0102, 0600, NULL));
}

/* A child that has all of its parent's memory, and none of its own, for a while. */
static void share_with_a_child(void) {
  long bytes = 96 * MIB;
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(3);
  for (long at = 0; at < bytes; at += 4096) memory[at] = 1;
  struct timespec while_ = {0, 300000000};
  if (vfork() == 0) {
    syscall(SYS_nanosleep, &while_, NULL);
    _exit(0);
  }
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "";
  if (!strcmp(what, "private")) map(MAP_PRIVATE);
  if (!strcmp(what, "shared")) map(MAP_SHARED);
  if (!strcmp(what, "populated")) map(MAP_PRIVATE | MAP_POPULATE);
  if (!strcmp(what, "children")) map_among_children();
  if (!strcmp(what, "tables")) fill_tables();
  if (!strcmp(what, "vfork")) share_with_a_child();
  if (!strcmp(what, "unmapped")) unmapped_memory();
  if (!strcmp(what, "fork")) fork_for_ever();
  if (!strcmp(what, "clone")) clone_for_ever();
  if (!strcmp(what, "spin")) spin();
  if (!strcmp(what, "kernel")) attack_the_kernel();
  if (!strcmp(what, "execveat")) execute_from_memory(arguments[0]);
  if (!strcmp(what, "trap")) __builtin_trap();
  return 0;
}
