#include "agent/facade/error.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "base/version/build_version.h"

namespace plumbline::facade {
namespace {

thread_local plumbline_error_t t_error;

}  // namespace

plumbline_error_t* ThreadError() { return &t_error; }

plumbline_status_t Fail(plumbline_status_t status, const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(t_error.text, sizeof(t_error.text), format, args);
  va_end(args);
  return status;
}

void Warn(const char* format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  fprintf(stderr, "plumbline: %s\n", text);
}

ErrnoKeeper::ErrnoKeeper() : saved_(errno) {}
ErrnoKeeper::~ErrnoKeeper() { errno = saved_; }

}  // namespace plumbline::facade

extern "C" {

const char* plumbline_status_name(plumbline_status_t status) {
  switch (status) {
    case PLUMBLINE_OK:
      return "ok";
    case PLUMBLINE_NOT_DUE:
      return "not-due";
    case PLUMBLINE_DISABLED:
      return "disabled";
    case PLUMBLINE_DROPPED:
      return "dropped";
    case PLUMBLINE_INVALID_ARGUMENT:
      return "invalid-argument";
    case PLUMBLINE_FAILED_PRECONDITION:
      return "failed-precondition";
    case PLUMBLINE_UNAVAILABLE:
      return "unavailable";
    case PLUMBLINE_DEADLINE_EXCEEDED:
      return "deadline-exceeded";
    case PLUMBLINE_RESOURCE_EXHAUSTED:
      return "resource-exhausted";
    case PLUMBLINE_INTERNAL:
      return "internal";
    default:
      return "unknown-status";
  }
}

const char* plumbline_last_error(void) { return plumbline::facade::ThreadError()->text; }

const char* plumbline_version(void) { return plumbline::BuildVersion(); }

}  // extern "C"
