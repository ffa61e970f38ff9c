// Texts of failures, in the form in which they are passed to the façade.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "agent/agent_table.h"

namespace plumbline::agent {

inline plumbline_status_t Fail(plumbline_error_t* error, plumbline_status_t code,
                               std::string_view text) {
  const size_t n = std::min(text.size(), sizeof(error->text) - 1);
  std::memcpy(error->text, text.data(), n);
  error->text[n] = '\0';
  return code;
}

}  // namespace plumbline::agent
