#include "server/log.h"

#include <spdlog/spdlog.h>

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

void Log(LogLevel level, fmt::string_view format, fmt::format_args args) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  const spdlog::level::level_enum at = LevelOf(level);
  if (logger->should_log(at)) logger->log(at, spdlog::string_view_t(fmt::vformat(format, args)));
}

}  // namespace plumbline::server::internal
