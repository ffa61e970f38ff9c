// A real plumbd, queried over HTTP as by a browser or a program.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/server/doors/support.h"
#include "tests/support/files.h"

namespace plumbline::test {

using nlohmann::json;

struct Answer {
  int status = 0;
  std::string head, body;
  json value() const { return json::parse(body, nullptr, false); }
};

inline Answer Parsed(const std::string& bytes) {
  Answer answer;
  const size_t end = bytes.find("\r\n\r\n");
  answer.head = bytes.substr(0, end);
  if (end != std::string::npos) answer.body = bytes.substr(end + 4);
  if (bytes.size() > 12) answer.status = std::atoi(bytes.substr(9, 3).c_str());
  return answer;
}

inline std::string Encoded(const std::string& text) {
  std::string out;
  char hex[4];
  for (const char c : text) {
    std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned char>(c));
    out += hex;
  }
  return out;
}

class WebTest : public testing::Test {
 protected:
  void Start(const std::string& toml = "") {
    server_ = StartWith(folder_, toml, {"--http", "127.0.0.1:0"});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
    http_ = HttpAddress(*server_);
  }
  std::string Entry(const std::string& name, const std::string& tokens, const std::string& scopes,
                    const std::string& runs = "['*']") {
    return "[[access]]\nname = '" + name + "'\ntoken_file = '" +
           WriteSecret(folder_, name + ".tokens", tokens) + "'\nscopes = " + scopes +
           "\nruns = " + runs + "\n";
  }
  static std::string Bearer(const TestToken& token) {
    std::string text = ReadFile(token.file);
    text.erase(text.find_last_not_of('\n') + 1);
    return "Authorization: Bearer " + text + "\r\n";
  }
  Answer Send(const std::string& method, const std::string& path, const std::string& headers = "",
              const std::string& host = "127.0.0.1") {
    const int fd = Dial(http_);
    const std::string request = method + " " + path + " HTTP/1.1\r\nHost: " + host +
                                "\r\nConnection: close\r\nContent-Length: 0\r\n" + headers + "\r\n";
    (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    std::string bytes;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) {
      bytes.append(buffer, static_cast<size_t>(n));
    }
    close(fd);
    return Parsed(bytes);
  }
  Answer Get(const std::string& path, const std::string& headers = "") {
    return Send("GET", "/api/v1/" + path, headers);
  }
  Answer Change(const std::string& fingerprint, const json& update, const std::string& headers) {
    return Send("POST", "/api/v1/incidents/" + fingerprint + "/state",
                "Plumbline-Update: " + Encoded(update.dump()) + "\r\n" + headers);
  }
  // Makes a run with one open error. Returns the fingerprint of its incident, as visible with
  // `headers`.
  std::string Leak(const std::string& run, uint64_t stream, const std::string& headers = "") {
    agents_.push_back(std::make_unique<AgentStream>(*server_, stream, std::vector{SourceOf(run)}));
    return WaitFor(run, stream, headers);
  }
  std::string WaitFor(const std::string& run, uint64_t /*stream*/, const std::string& headers) {
    agents_.back()->Send(LeakingStep(SourceOf(run), 0), 1);
    std::string fingerprint;
    EXPECT_TRUE(Eventually([&] {
      for (const json& row : Get("incidents", headers).value().value("incidents", json::array())) {
        if (row["run"] == run && row["rule"] == "causality/moe-future-leak") {
          fingerprint = row["fingerprint"];
        }
      }
      return !fingerprint.empty();
    }));
    return fingerprint;
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::string http_;
  std::vector<std::unique_ptr<AgentStream>> agents_;
};

// A connection that receives events; stores what has arrived so far.
class EventReader {
 public:
  EventReader(const std::string& http, const std::string& headers = "") : fd_(Dial(http)) {
    const std::string request =
        "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + "\r\n";
    (void)!send(fd_, request.data(), request.size(), MSG_NOSIGNAL);
  }
  ~EventReader() { close(fd_); }
  bool Sees(const std::string& words) {
    return Eventually([&] {
             pollfd ready{fd_, POLLIN, 0};
             char buffer[4096];
             while (poll(&ready, 1, 50) > 0) {
               const ssize_t n = read(fd_, buffer, sizeof buffer);
               if (n <= 0) {
                 over_ = true;
                 break;
               }
               text_.append(buffer, static_cast<size_t>(n));
             }
             return text_.find(words) != std::string::npos || over_;
           }) &&
           text_.find(words) != std::string::npos;
  }
  bool Ends() {
    return Eventually([&] { return !Sees("never") && over_; });
  }
  const std::string& text() const { return text_; }

 private:
  const int fd_;
  std::string text_;
  bool over_ = false;
};

}  // namespace plumbline::test
