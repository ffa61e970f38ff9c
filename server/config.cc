#include "server/config.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

absl::Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be between ", low, " and ", high, ", found ", value));
}

std::string_view HostOf(std::string_view address) {
  const size_t colon = address.rfind(':');
  std::string_view host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

bool HasPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view text = address.substr(colon + 1);
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 0 && port <= 65535;
}

absl::Status CheckAddress(const char* name, const std::string& address, bool insecure) {
  const bool unix_socket = address.rfind("unix:", 0) == 0;
  if (!unix_socket && !HasPort(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be HOST:PORT, found \"", address, "\""));
  }
  if (!IsLoopback(address) && !insecure) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " ", address,
                     " is not a loopback address and nothing would be encrypted or authenticated; "
                     "use 127.0.0.1 behind a tunnel, or --insecure on a network you trust"));
  }
  return absl::OkStatus();
}

absl::Status CheckRelay(const Config& c) {
  if (c.relay_upstream.empty()) return absl::OkStatus();
  if (!c.data_directory.empty() || !c.rules.empty() || !c.settings.empty()) {
    return absl::InvalidArgumentError(
        "--relay judges and keeps nothing: --data, --rules and --set belong to the server above "
        "(agents keep what it has not acknowledged, in their spools)");
  }
  if (c.relay_upstream == c.grpc) {
    return absl::InvalidArgumentError("--relay " + c.relay_upstream + " is its own address");
  }
  return CheckAddress("--relay", c.relay_upstream, c.insecure);
}

}  // namespace

bool IsLoopback(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  const std::string_view host = HostOf(address);
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8 and nothing that merely begins like it ("127.example.org").
  return host.substr(0, 4) == "127." &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

absl::Status ValidateConfig(const Config& c) {
  if (auto s = CheckAddress("--grpc", c.grpc, c.insecure); !s.ok()) return s;
  if (c.http != "off") {
    if (auto s = CheckAddress("--http", c.http, c.insecure); !s.ok()) return s;
  }
  if (auto s = CheckRelay(c); !s.ok()) return s;
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const struct {
    const char* name;
    double value, low, high;
  } ranges[] = {
      {"ingest.grace_seconds", c.grace_seconds, 0, 86400},
      {"ingest.ack_seconds", c.ack_seconds, 0.01, 60},
      {"ingest.ack_batches", static_cast<double>(c.ack_batches), 1, 1e6},
      {"ingest.queue_bytes", static_cast<double>(c.queue_bytes), 1 << 20, 1024 * kGiB},
      {"ingest.message_bytes", static_cast<double>(c.message_bytes), 1 << 16, kGiB},
      {"ingest.waiting_batches", static_cast<double>(c.waiting_batches), 0, 1e6},
      {"ingest.waiting_bytes", static_cast<double>(c.waiting_bytes), 0, 16 * kGiB},
      {"ingest.max_streams", static_cast<double>(c.max_streams), 1, 1e7},
      {"ingest.max_name_bytes", static_cast<double>(c.max_name_bytes), 16, 65536},
      {"journal.sync_seconds", c.journal_sync_seconds, 0.01, 3600},
      {"journal.commit_ms", c.journal_commit_ms, 0, 1000},
      {"journal.commit_bytes", static_cast<double>(c.journal_commit_bytes), 1, kGiB},
      {"journal.segment_bytes", static_cast<double>(c.journal_segment_bytes), 4096, 64 * kGiB},
      {"store.bytes", static_cast<double>(c.store_bytes), 0, 1e6 * kGiB},
      {"store.days", c.store_days, 0, 36500},
      {"incidents.quiet_steps", static_cast<double>(c.quiet_steps), 1, 1e12},
      {"journal.keep_days", c.journal_keep_days, 0, 100000},
      {"journal.keep_bytes", static_cast<double>(c.journal_keep_bytes), 0, 1e18},
      {"checkpoint.bytes", static_cast<double>(c.checkpoint_bytes), 1, 1024 * kGiB},
      {"checkpoint.seconds", c.checkpoint_seconds, 0.01, 86400},
      {"rules.window_steps", static_cast<double>(c.window_steps), 1, 1e9},
  };
  for (const auto& r : ranges) {
    if (auto s = CheckRange(r.name, r.value, r.low, r.high); !s.ok()) return s;
  }
  if (c.journal_sync != "commit" && c.journal_sync != "interval" && c.journal_sync != "never") {
    return absl::InvalidArgumentError(absl::StrCat(
        "journal.sync must be commit, interval or never, found \"", c.journal_sync, "\""));
  }
  if (auto s = ValidateAlerts(c.alerts, c.insecure); !s.ok()) return s;
  const char* levels[] = {"trace", "debug", "info", "warning", "error", "off"};
  if (std::find(std::begin(levels), std::end(levels), c.log_level) == std::end(levels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("log.level must be trace, debug, info, warning, error or off, found \"",
                     c.log_level, "\""));
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
