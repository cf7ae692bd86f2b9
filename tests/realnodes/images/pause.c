/* The program of a pod's sandbox: it waits for its end, and for the processes of which it is the parent. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) { (void)number; _exit(0); }

static void reap(int number) {
  (void)number;
  while (waitpid(-1, 0, WNOHANG) > 0) continue;
}

int main(void) {
  signal(SIGINT, end);
  signal(SIGTERM, end);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
