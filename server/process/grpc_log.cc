#include "server/process/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

int64_t NowSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Log(gpr_log_func_args* line) {
  static std::atomic<int64_t> stated{-1};
  static std::atomic<uint64_t> unsaid{0};
  if (line->severity != GPR_LOG_SEVERITY_ERROR) {
    return LogDebug("grpc: {:?}", std::string(line->message));
  }
  const int64_t now = NowSeconds();
  int64_t before = stated.load();
  if (now == before || !stated.compare_exchange_strong(before, now)) {
    ++unsaid;
    return;
  }
  const uint64_t left_out = unsaid.exchange(0);
  LogWarning("grpc: {:?}{}", std::string(line->message),
             left_out == 0 ? "" : absl::StrCat(" (and ", left_out, " more since the last line)"));
}

}  // namespace

void TakeOverGrpcLog() { gpr_set_log_function(Log); }

}  // namespace plumbline::server
