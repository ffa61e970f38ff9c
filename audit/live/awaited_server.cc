#include "audit/live/awaited_server.h"

#include <chrono>
#include <cstdio>

#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr double kAnswerSeconds = 1, kPollSeconds = 0.1;
constexpr std::chrono::seconds kSilentSeconds{5};

}  // namespace

bool Permanent(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kUnimplemented ||
         status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kPermissionDenied ||
         status.code() == absl::StatusCode::kUnauthenticated;
}

bool ReportThatWeWait(const std::string& command, Client& client, const std::string& server,
                      const std::function<bool()>& stopped) {
  const auto end = std::chrono::steady_clock::now() + kSilentSeconds;
  const absl::Status why = client.Info(kAnswerSeconds).status();
  if (why.ok() || Permanent(why)) return false;
  while (!stopped() && std::chrono::steady_clock::now() < end) {
    if (client.AwaitServer(kPollSeconds)) return false;
  }
  if (stopped()) return false;
  const std::string message =
      "waiting for " + server + ", is plumbd running there? (" + std::string(why.message()) + ")";
  std::fprintf(stderr, "plumb %s: %s\n", command.c_str(), Printable(message).c_str());
  return true;
}

}  // namespace plumbline::audit
