/* Hostile programs without an interpreter in between, that use up files, output and time, or leave
 * something behind; the first argument says which one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1L << 20)

static char block[MIB];

/* Writes file after file, and ends when one cannot be written. */
static void fill(void) {
  memset(block, 1, sizeof block);
  for (int n = 0; n < 700; n++) {
    char name[32];
    sprintf(name, "f%d", n);
    int file = open(name, O_CREAT | O_WRONLY, 0600);
    if (file < 0 || write(file, block, sizeof block) != sizeof block) exit(1);
    close(file);
  }
}

static void make_many(void) {
  for (int n = 0; n < 1000000; n++) {
    char name[32];
    sprintf(name, "f%d", n);
    int file = open(name, O_CREAT | O_WRONLY, 0600);
    if (file < 0) exit(1);
    close(file);
  }
}

static void make_giant(void) {
  int file = open("giant", O_CREAT | O_WRONLY, 0600);
  printf("%s\n", ftruncate(file, 1L << 40) == 0 ? "made" : "refused");
}

static void open_many(void) {
  int n = 0;
  while (n < 20000 && open("/dev/null", O_RDONLY) >= 0) n++;
  printf("%s %d\n", strerrorname_np(errno), n < 1024);
}

static void flood(void) {
  memset(block, 'x', sizeof block);
  for (;;)
    if (write(1, block, 65536) < 0) write(2, block, 65536);
}

static void trickle(void) {
  for (;;) {
    write(1, ".", 1);
    usleep(50000);
  }
}

/* Daemons that hold the output, take no signal and have left their parent and its session. */
static void leave_daemons(const char *name) {
  for (int n = 0; n < 4; n++)
    if (fork() == 0) {
      setsid();
      if (fork() != 0) _exit(0);
      sigset_t all;
      sigfillset(&all);
      sigprocmask(SIG_BLOCK, &all, NULL);
      prctl(PR_SET_NAME, name);
      for (;;) sleep(600);
    }
  printf("started\n");
}

/* What is no plain file, and what resists removal. */
static void leave_oddities(void) {
  symlink("/etc/passwd", "link");
  symlink("loop", "loop");
  mkfifo("pipe", 0600);
  close(open("one", O_CREAT | O_WRONLY, 0600));
  link("one", "two");
  mkdir("locked", 0);
  for (int level = 0; level < 1000; level++) {
    mkdir("deep", 0700);
    if (chdir("deep") != 0) break;
  }
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "";
  if (!strcmp(what, "fill")) fill();
  if (!strcmp(what, "many")) make_many();
  if (!strcmp(what, "giant")) make_giant();
  if (!strcmp(what, "open")) open_many();
  if (!strcmp(what, "flood")) flood();
  if (!strcmp(what, "trickle")) trickle();
  if (!strcmp(what, "sleep")) for (;;) pause();
  if (!strcmp(what, "daemons")) leave_daemons(arguments[2]);
  if (!strcmp(what, "oddities")) leave_oddities();
  if (!strcmp(what, "abort")) abort();
  if (!strcmp(what, "kill")) raise(SIGKILL);
  if (!strcmp(what, "address")) *(volatile int *)8 = 1;
  if (!strcmp(what, "code")) return 137;
  return 0;
}
