#include "server/process/log.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>
#include <string>
#include <string_view>

#include "server/process/log_limit.h"

namespace plumbline::server::internal {
namespace {

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kCritical:
      break;
  }
  return spdlog::level::critical;
}

}  // namespace

namespace {

LogLimit& Limit() {
  static auto* const limit = new LogLimit;  // never destroyed: outlives every thread that logs
  return *limit;
}

void DescribeLeftOut(spdlog::logger* logger, bool all) {
  for (const std::string& line : Limit().LeftOut(std::chrono::steady_clock::now(), all)) {
    logger->log(spdlog::level::warn, spdlog::string_view_t(line));
  }
}

// Returns the kind of a line. If the format is only "{}", the kind is the line's beginning.
std::string_view KindOf(fmt::string_view format, std::string_view line) {
  constexpr size_t kBeginning = 24;
  if (std::string_view(format.data(), format.size()) == "{}") return line.substr(0, kBeginning);
  return {format.data(), format.size()};
}

}  // namespace

void ReportWhatWasLeftOut(bool all) {
  try {
    DescribeLeftOut(spdlog::default_logger_raw(), all);
  } catch (const std::exception&) {
  }
}

void Log(LogLevel level, fmt::string_view format, fmt::format_args args) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  const spdlog::level::level_enum at = LevelOf(level);
  if (!logger->should_log(at)) return;
  try {
    const std::string line = fmt::vformat(format, args);
    if (Limit().Admit(KindOf(format, line), std::chrono::steady_clock::now())) {
      logger->log(at, spdlog::string_view_t(line));
    }
    DescribeLeftOut(logger, false);
  } catch (const std::exception&) {  // no memory: the line is lost, as in spdlog
  }
}

}  // namespace plumbline::server::internal
