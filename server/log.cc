#include "server/log.h"

#include <spdlog/spdlog.h>

#include <exception>

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
  if (!logger->should_log(at)) return;
  try {
    logger->log(at, spdlog::string_view_t(fmt::vformat(format, args)));
  } catch (const std::exception&) {  // no memory: a line less, as spdlog has it
  }
}

}  // namespace plumbline::server::internal
