// Messages that arrive in part and never end: the memory of all of them together is limited.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

// One hand-written HTTP/2 connection with one call: announces a message of 64 MiB, and sends
// everything except its end, as fast as the server allows.
class HalfSent {
 public:
  explicit HalfSent(const std::string& address) : socket_(Dial(address)) {
    std::string head = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
    std::string fields;
    for (const auto& [name, value] : std::initializer_list<std::pair<std::string, std::string>>{
             {":method", "POST"},
             {":scheme", "http"},
             {":path", "/plumbline.v1.Ingest/Stream"},
             {":authority", "localhost"},
             {"content-type", "application/grpc"},
             {"te", "trailers"}})
      fields += '\0' + Short(name) + Short(value);
    Send(head + Frame(kHeaders, kEndHeaders, 1, fields));
  }
  ~HalfSent() { close(socket_); }
  HalfSent(const HalfSent&) = delete;
  HalfSent& operator=(const HalfSent&) = delete;

  // Reads arrived bytes and sends the allowed number of bytes. Returns false if nothing more can be
  // done.
  bool Go() {
    Receive();
    while (!over_ && left_ > 0) {
      const int64_t now = std::min({kFrame, left_, connection_, stream_ + initial_});
      if (now < 16) return true;
      std::string data(static_cast<size_t>(now), '\0');
      if (left_ == kBytes) data.replace(0, 5, std::string("\0\3\377\377\377", 5));
      Send(Frame(kData, 0, 1, data));
      left_ -= now;
      connection_ -= now;
      stream_ -= now;
    }
    return !over_ && left_ > 0;
  }
  bool over() const { return over_; }

 private:
  static constexpr int64_t kBytes = 60 << 20, kFrame = 16384;
  enum Kind : char { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kWindow = 8 };
  static constexpr char kEndHeaders = 4, kAck = 1, kEndStream = 1;

  static std::string Short(const std::string& text) {
    return static_cast<char>(text.size()) + text;
  }
  static std::string Number(uint32_t n) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(n >> shift & 255);
    return bytes;
  }
  static uint32_t NumberAt(const std::string& bytes, size_t at) {
    uint32_t n = 0;
    for (size_t i = at; i < at + 4; ++i) n = n << 8 | static_cast<uint8_t>(bytes[i]);
    return n;
  }
  static std::string Frame(char kind, char flags, uint32_t stream, const std::string& payload) {
    return Number(static_cast<uint32_t>(payload.size())).substr(1) + kind + flags + Number(stream) +
           payload;
  }
  void Send(const std::string& bytes) {
    for (size_t done = 0; done < bytes.size() && !over_;) {
      const ssize_t n = send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) over_ = true;
      done += static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
  }
  void Receive() {
    char bytes[65536];
    for (ssize_t n; (n = recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT)) >= 0;) {
      if (n == 0) over_ = true;
      if (over_) return;
      came_.append(bytes, static_cast<size_t>(n));
    }
    while (came_.size() >= 9) {
      const size_t size = NumberAt(came_, 0) >> 8;
      if (came_.size() < 9 + size) return;
      Take(came_[3], came_[4], NumberAt(came_, 5), came_.substr(9, size));
      came_.erase(0, 9 + size);
    }
  }
  void Take(char kind, char flags, uint32_t stream, const std::string& payload) {
    if (kind == kWindow) (stream == 0 ? connection_ : stream_) += NumberAt(payload, 0);
    if (kind == kPing && flags == 0) Send(Frame(kPing, kAck, 0, payload));
    if (kind == kReset || (kind == kHeaders && (flags & kEndStream) != 0)) over_ = true;
    if (kind != kSettings || flags != 0) return;
    for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
      const bool window = payload[at] == 0 && payload[at + 1] == 4;
      if (window) initial_ = NumberAt(payload, at + 2);
    }
    Send(Frame(kSettings, kAck, 0, ""));
  }

  const int socket_;
  bool over_ = false;
  int64_t left_ = kBytes;
  int64_t connection_ = 65535, initial_ = 65535, stream_ = 0;
  std::string came_;
};

TEST(DoorsReceive, MessagesThatComeInPartAreBoundedTogether) {
  TempFolder folder;
  const auto server = StartWith(folder, "[limits]\nreceive_bytes = 134_217_728\n");
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const uint64_t before = PeakMiB(server->process());
  std::vector<std::unique_ptr<HalfSent>> calls;
  for (int i = 0; i < 24; ++i) calls.push_back(std::make_unique<HalfSent>(server->address()));
  // 1,440 MiB if all were taken. The test does not wait for all of it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool more = true;
  while (more && std::chrono::steady_clock::now() < end) {
    more = false;
    for (const auto& call : calls) more |= call->Go();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
#ifdef PLUMBLINE_SANITIZED
  const uint64_t limit = 768;  // with the redzones and the quarantine of a sanitizer
#else
  const uint64_t limit = 512;
#endif
  EXPECT_LT(PeakMiB(server->process()), before + limit);
  EXPECT_GT(
      std::count_if(calls.begin(), calls.end(), [](const auto& call) { return call->over(); }), 8);
  calls.clear();
  // A client with a complete message is served.
  const v1::Source source = SourceOf("run");
  EXPECT_TRUE(Eventually([&] {
    AgentStream agent(*server, 7, {source});
    agent.Send(ScalarStep(source, 1), 1);
    return agent.Acknowledged(1);
  }));
  EXPECT_EQ(server->Stop(), 0);
}

}  // namespace
}  // namespace plumbline::test
