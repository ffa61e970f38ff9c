// Field numbers are those of summary.proto, hparams' plugin_data.proto and struct.proto.
#include "audit/readers/tensorboard/hparams.h"

#include <bit>
#include <charconv>
#include <string>

#include "audit/readers/input/wire.h"

namespace plumbline::audit {
namespace {

// Reads the last occurrence of the bytes field `wanted` in a message, or "" if there is none.
// Returns false if the bytes are not a message.
bool PartOf(std::string_view bytes, uint32_t wanted, std::string_view* part) {
  WireReader message(bytes);
  uint32_t field = 0, type = 0;
  while (message.Next(&field, &type)) {
    const bool is = field == wanted && type == WireReader::kBytes;
    if (!(is ? message.Bytes(part) : message.Skip(type))) return false;
  }
  return !message.failed();
}

// Returns a google.protobuf.Value as text; "" for null, a list or an object.
bool ValueText(std::string_view bytes, std::string* text) {
  enum : uint32_t { kNumber = 2, kText = 3, kFlag = 4 };
  WireReader value(bytes);
  uint32_t field = 0, type = 0;
  while (value.Next(&field, &type)) {
    uint64_t bits = 0;
    std::string_view words;
    if (field == kNumber && type == WireReader::kFixed64) {
      if (!value.Fixed64(&bits)) return false;
      char digits[32];
      const auto end = std::to_chars(digits, digits + sizeof digits, std::bit_cast<double>(bits));
      text->assign(digits, end.ptr);
    } else if (field == kText && type == WireReader::kBytes) {
      if (!value.Bytes(&words)) return false;
      *text = words;
    } else if (field == kFlag && type == WireReader::kVarint) {
      if (!value.Varint(&bits)) return false;
      *text = bits != 0 ? "true" : "false";
    } else if (!value.Skip(type)) {
      return false;
    }
  }
  return !value.failed();
}

}  // namespace

bool ReadHparams(std::string_view metadata, PointSink* sink) {
  enum : uint32_t { kPluginData = 1, kContent = 2, kSessionStart = 3, kHparams = 1 };
  std::string_view plugin, content, session;
  if (!PartOf(metadata, kPluginData, &plugin) || !PartOf(plugin, kContent, &content) ||
      !PartOf(content, kSessionStart, &session))
    return false;
  WireReader start(session);
  uint32_t field = 0, type = 0;
  while (start.Next(&field, &type)) {
    std::string_view entry, name, value;
    std::string text;
    if (field != kHparams || type != WireReader::kBytes) {
      if (!start.Skip(type)) return false;
      continue;
    }
    if (!start.Bytes(&entry) || !PartOf(entry, 1, &name) || !PartOf(entry, 2, &value) ||
        !ValueText(value, &text))
      return false;
    sink->Setting(name, text);
  }
  return !start.failed();
}

}  // namespace plumbline::audit
