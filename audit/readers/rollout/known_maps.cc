#include "audit/readers/rollout/known_maps.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "audit/readers/input/json_cursor.h"
#include "audit/readers/rollout/known_map_texts.h"

namespace plumbline::audit {
namespace {

// Keys that occur together only in this trainer's records.
struct MapKeys {
  std::string_view map;
  std::string_view keys[2];
};
constexpr MapKeys kMapKeys[] = {{"verl", {"responses", "response_mask"}},
                                {"trl", {"completion_ids", "completion_mask"}},
                                {"openrlhf", {"action_mask", "action_log_probs"}},
                                {"slime", {"response_length", "rollout_log_probs"}}};
constexpr std::string_view kSampleKeys[][2] = {
    {"input", "output"}, {"prompt", "completion"}, {"prompt", "response"}};

bool IsNumber(JsonCursor::Kind kind) {
  return kind == JsonCursor::Kind::kNumber || kind == JsonCursor::Kind::kWord;
}

// Returns the keys of the first record, as far as the text contains it. If `texts`, leaves out keys
// of numbers.
std::set<std::string, std::less<>> KeysOfFirst(std::string_view head, bool texts = false) {
  std::set<std::string, std::less<>> keys;
  JsonCursor cursor(head);
  if (cursor.Peek() == JsonCursor::Kind::kList && (!cursor.EnterList() || !cursor.NextElement()))
    return keys;
  if (cursor.Peek() != JsonCursor::Kind::kObject || !cursor.EnterObject()) return keys;
  for (std::string_view key; cursor.NextMember(&key);) {
    const std::string name(key);
    if (!texts || !IsNumber(cursor.Peek())) keys.insert(name);
    if (!cursor.Skip()) break;
  }
  return keys;
}

}  // namespace

std::optional<std::string_view> KnownMap(std::string_view name) {
  const auto* found = std::find_if(std::begin(kKnownMapTexts), std::end(kKnownMapTexts),
                                   [&](const KnownMapText& map) { return map.name == name; });
  return found == std::end(kKnownMapTexts) ? std::nullopt : std::optional(found->text);
}

std::string_view KnownMapFor(std::string_view head) {
  const auto keys = KeysOfFirst(head);
  for (const MapKeys& known : kMapKeys) {
    if (keys.contains(known.keys[0]) && keys.contains(known.keys[1])) return known.map;
  }
  return {};
}

bool HoldsSamplesAlone(std::string_view head) {
  const auto keys = KeysOfFirst(head, true);
  return std::any_of(std::begin(kSampleKeys), std::end(kSampleKeys), [&](const auto& pair) {
    return keys.contains(pair[0]) && keys.contains(pair[1]);
  });
}

}  // namespace plumbline::audit
