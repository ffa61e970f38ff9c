// A server to be stopped or killed: prints its address, then serves until it ends.
#include <unistd.h>

#include <cstdio>

#include "tests/agent/core/support.h"

int main() {
  plumbline::agent::testing::RecordingServer server;
  std::printf("%s\n", server.target().c_str());
  std::fflush(stdout);
  for (;;) pause();
}
