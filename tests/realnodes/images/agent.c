/* An agent with faults, for tests on real nodes. It serves HTTP on --port: /readyz and /healthz.
 *
 *   agent [--port N] [--delay S] [--exit-after S] [--code N] [--leak] [--unready] [--unhealthy-after S] [--ignore-term]
 *
 * --delay: seconds before it serves; --exit-after: seconds until it exits with --code, -1 never. */
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int port = 8080, delay, exit_after = -1, code = 3, leak, unready, unhealthy_after = -1, ignore_term;

static void end(int number) { (void)number; _exit(0); }

static void fail(int number) {
  static const char message[] = "agent: cannot open its configuration\n";
  (void)number;
  (void)!write(2, message, sizeof message - 1);
  _exit(code);
}

static void read_options(int count, char **values) {
  static const struct option options[] = {
      {"port", 1, 0, 'p'}, {"delay", 1, 0, 'd'},      {"exit-after", 1, 0, 'e'},      {"code", 1, 0, 'c'},
      {"leak", 0, 0, 'l'}, {"unready", 0, 0, 'u'},    {"unhealthy-after", 1, 0, 'h'}, {"ignore-term", 0, 0, 'i'},
      {0, 0, 0, 0}};
  int option;
  while ((option = getopt_long(count, values, "", options, 0)) != -1) switch (option) {
      case 'p': port = atoi(optarg); break;
      case 'd': delay = atoi(optarg); break;
      case 'e': exit_after = atoi(optarg); break;
      case 'c': code = atoi(optarg); break;
      case 'l': leak = 1; break;
      case 'u': unready = 1; break;
      case 'h': unhealthy_after = atoi(optarg); break;
      case 'i': ignore_term = 1; break;
      default: _exit(2);
    }
}

static void answer(int client, time_t start) {
  char request[2048] = {0};
  if (read(client, request, sizeof request - 1) > 0) {
    int unhealthy = unhealthy_after >= 0 && time(0) - start >= unhealthy_after && strstr(request, "/healthz");
    int bad = unhealthy || (unready && strstr(request, "/readyz"));
    dprintf(client, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            bad ? "503 Service Unavailable" : "200 OK");
  }
  close(client);
}

int main(int count, char **values) {
  time_t start = time(0);
  int one = 1, server;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
  read_options(count, values);
  signal(SIGTERM, ignore_term ? SIG_IGN : end);
  signal(SIGALRM, fail);
  if (exit_after == 0) fail(0);
  if (exit_after > 0) alarm(exit_after);
  sleep(delay);
  while (leak) {
    char *some = malloc(4 << 20);
    if (some) memset(some, 1, 4 << 20);
    usleep(50000);
  }
  address.sin_port = htons(port);
  server = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(server, (void *)&address, sizeof address)) {
    perror("agent: bind");
    return 4;
  }
  listen(server, 16);
  for (;;) {
    int client = accept(server, 0, 0);
    if (client >= 0) answer(client, start);
  }
}
