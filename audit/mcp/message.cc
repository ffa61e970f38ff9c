#include "audit/mcp/message.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable.h"

namespace plumbline::audit::mcp {
namespace {

// Checks the nesting before a value is built, because later code may recurse over it.
bool NestsWithin(std::string_view json, size_t most) {
  size_t depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return false;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<Json> ParseMessage(std::string_view line) {
  if (!NestsWithin(line, kMostNesting)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected JSON with a nesting of at most ", kMostNesting, " deep"));
  }
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected JSON in UTF-8, found invalid UTF-8 at byte ", error.byte));
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("expected numbers in the range of a double");
  }
}

std::optional<Json> IdOf(const Json& message) {
  if (!message.is_object()) return std::nullopt;
  const auto id = message.find("id");
  if (id == message.end()) return std::nullopt;
  const bool text = id->is_string() && id->get_ref<const std::string&>().size() <= kMostIdBytes;
  if (!text && !id->is_number_integer()) return std::nullopt;
  return *id;
}

Json ResultMessage(const Json& id, Json result) {
  Json message;
  message["jsonrpc"] = "2.0";
  message["id"] = id;
  message["result"] = std::move(result);
  return message;
}

Json ErrorMessage(const std::optional<Json>& id, const Refusal& refusal) {
  Json message;
  message["jsonrpc"] = "2.0";
  if (id) message["id"] = *id;
  message["error"]["code"] = refusal.code;
  message["error"]["message"] = ValidUtf8(refusal.message);
  return message;
}

Json NotificationMessage(const char* method, Json params) {
  Json message;
  message["jsonrpc"] = "2.0";
  message["method"] = method;
  message["params"] = std::move(params);
  return message;
}

std::string LineOf(const Json& message) {
  return TerminalSafeJson(message.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace plumbline::audit::mcp
