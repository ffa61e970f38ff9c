#include "server/process/process_copy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <new>
#include <thread>
#include <vector>

namespace plumbline::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Checks that no child process is left.
void ExpectNoChild() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ProcessCopy, WritesWhatWasKnownWhenItStarted) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{65536}, size_t{40} << 20}) {
    std::string known(size, 'a');
    auto copy = ProcessCopy::Start([&] {
      usleep(20'000);  // the process continues meanwhile
      return known;
    });
    ASSERT_TRUE(copy.ok()) << copy.status();
    std::fill(known.begin(), known.end(), 'b');
    const auto read = (*copy)->Read(seconds(60));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, std::string(size, 'a'));
    ExpectNoChild();
  }
}

TEST(ProcessCopy, WritesByPieces) {
  auto copy = ProcessCopy::StartPieces([](const ProcessCopy::Pieces& write) {
    for (int i = 0; i < 100; ++i)
      write(std::string(size_t{1} << 16, static_cast<char>('a' + i % 7)));
  });
  ASSERT_TRUE(copy.ok()) << copy.status();
  size_t bytes = 0, largest = 0;
  const absl::Status read = (*copy)->Read(seconds(60), [&](std::string_view piece) {
    bytes += piece.size();
    largest = std::max(largest, piece.size());
  });
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_EQ(bytes, size_t{100} << 16);
  EXPECT_LE(largest, size_t{1} << 20);
  auto broken = ProcessCopy::StartPieces([](const ProcessCopy::Pieces& write) {
    write("half");
    throw std::bad_alloc();
  });
  ASSERT_TRUE(broken.ok());
  EXPECT_FALSE((*broken)->Read(seconds(60), [](std::string_view) {}).ok());
  ExpectNoChild();
}

TEST(ProcessCopy, OneThatDiesOrThrowsIsAnError) {
  auto killed = ProcessCopy::Start([]() -> std::string {
    raise(SIGKILL);
    return "";
  });
  ASSERT_TRUE(killed.ok());
  EXPECT_EQ((*killed)->Read(seconds(60)).status().message(),
            "the copy of the process was ended by signal 9");
  auto thrown = ProcessCopy::Start([]() -> std::string { throw std::bad_alloc(); });
  ASSERT_TRUE(thrown.ok());
  EXPECT_EQ((*thrown)->Read(seconds(60)).status().message(),
            "the copy of the process could not write its data");
  ExpectNoChild();
}

TEST(ProcessCopy, OneThatHangsIsEnded) {
  auto copy = ProcessCopy::Start([]() -> std::string {
    for (;;) pause();
  });
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ((*copy)->Read(milliseconds(50)).status().message(),
            "the copy of the process took too long");
  ExpectNoChild();
}

TEST(ProcessCopy, OneWithoutAReaderIsEndedWithIt) {
  {
    auto copy = ProcessCopy::Start([] { return std::string(10 << 20, 'x'); });
    ASSERT_TRUE(copy.ok());
  }
  ExpectNoChild();
}

// A server that died must be able to listen again, even if its copy still runs.
TEST(ProcessCopy, HoldsNoFileOpen) {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listening, 1), 0);
  ASSERT_EQ(getsockname(listening, reinterpret_cast<sockaddr*>(&address), &length), 0);
  int reported[2];
  ASSERT_EQ(pipe(reported), 0);
  auto copy = ProcessCopy::Start([]() -> std::string {
    for (;;) pause();
  });
  ASSERT_TRUE(copy.ok());
  close(reported[1]);
  char byte = 0;
  EXPECT_EQ(read(reported[0], &byte, 1), 0) << "the copy holds the other end";
  close(reported[0]);
  close(listening);
  const int again = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(bind(again, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(listen(again, 1), 0);
  close(again);
}

// Other threads allocate and free all the time: a copy in which these threads hold malloc's locks
// would hang.
TEST(ProcessCopy, AllocatesWhileOtherThreadsDo) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&stop] {
      std::vector<std::string> strings;
      for (size_t n = 1; !stop; n = n * 7 % 100'003) {
        strings.emplace_back(n, 'x');
        if (strings.size() > 100) strings.clear();
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    auto copy = ProcessCopy::Start([] {
      std::string all;
      for (int i = 0; i < 1000; ++i) all += std::to_string(i);
      return all;
    });
    ASSERT_TRUE(copy.ok()) << copy.status();
    const auto read = (*copy)->Read(seconds(60));
    ASSERT_TRUE(read.ok()) << round << ": " << read.status();
    EXPECT_EQ(read->size(), 2890u);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace plumbline::server
