// plumbd's log, through spdlog: whole lines at a level, formatted as fmt does.
//
// spdlog's own functions compile fmt's formatter into every file that calls them, which takes 70 KB
// and two seconds each. These functions leave it to fmt's library. Thread-safe.
#pragma once

#include <fmt/core.h>

namespace plumbline::server {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kCritical };

namespace internal {
void Log(LogLevel level, fmt::string_view format, fmt::format_args args);
// Logs how many lines were left out by the limit per kind (server/process/log_limit.h). Called at
// the end and from time to time, since no other line may follow.
void ReportWhatWasLeftOut(bool all);
}  // namespace internal

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  internal::Log(LogLevel::kDebug, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  internal::Log(LogLevel::kInfo, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  internal::Log(LogLevel::kWarning, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  internal::Log(LogLevel::kError, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogCritical(fmt::format_string<Args...> format, Args&&... args) {
  internal::Log(LogLevel::kCritical, format, fmt::make_format_args(args...));
}

}  // namespace plumbline::server
