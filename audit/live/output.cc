#include "audit/live/output.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {

int LiveFailed(const absl::Status& status) {
  const std::string text = status.message().empty()
                               ? absl::StrCat(absl::StatusCodeToString(status.code()), ", no text")
                               : std::string(status.message());
  std::fprintf(stderr, "plumb: %s\n", Printable(text).c_str());
  return kLiveFailed;
}

int LivePrint(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kLiveFailed;
}

std::string JsonString(std::string_view text) {
  return TerminalSafeJson(nlohmann::json(ValidUtf8(text)).dump());
}

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text + "  ";
}

}  // namespace plumbline::audit
