#include "audit/readers/rollout/record_keys.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "audit/readers/input/byte_stream.h"
#include "audit/readers/input/json_cursor.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/rollout/array_lines.h"
#include "audit/readers/rollout/torch_samples.h"

namespace plumbline::audit {
namespace {

constexpr size_t kLook = 1 << 20;     // bytes searched to recognise a format
constexpr size_t kEnough = 64 << 10;  // bytes searched if they contain a record
// Bytes searched if the first record is longer than kLook and has a list of lists, as a batch has.
constexpr size_t kLookOfBatch = 64 << 20;

// Returns the keys of an object, as far as the text is valid.
RecordKeys KeysOf(std::string_view text) {
  RecordKeys keys;
  JsonCursor cursor(text);
  if (cursor.Peek() != JsonCursor::Kind::kObject) return keys;
  cursor.EnterObject();
  for (std::string_view key; cursor.NextMember(&key) && (keys.emplace(key), cursor.Skip());) {
  }
  return keys;
}

void AddLines(std::string bytes, std::vector<RecordKeys>* records) {
  ArrayLines().Rewrite(bytes.data(), bytes.size());
  std::string_view text = bytes;
  const size_t size = text.size();
  while (!text.empty() && (records->empty() || size - text.size() < kEnough)) {
    const size_t end = std::min(text.find('\n'), text.size());
    RecordKeys keys = KeysOf(text.substr(0, end));
    if (!keys.empty() && (records->empty() || records->back() != keys))
      records->push_back(std::move(keys));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Returns true if the text ends within a list of lists of the first record.
bool EndsInBatch(std::string_view bytes) {
  std::string text(bytes);
  ArrayLines().Rewrite(text.data(), text.size());
  const std::string_view record = text;
  JsonCursor cursor(record);
  if (cursor.Peek() != JsonCursor::Kind::kObject || !cursor.EnterObject()) return false;
  for (std::string_view key; cursor.NextMember(&key);) {
    JsonCursor value(cursor);
    const bool nested = value.Peek() == JsonCursor::Kind::kList && value.EnterList() &&
                        value.NextElement() && value.Peek() == JsonCursor::Kind::kList;
    if (!cursor.Skip()) return nested && cursor.cut();
  }
  return false;
}

// Returns true if the text begins like a JSON array, or a line of it like an object.
bool MayHoldObjects(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF", at);
    if (first == text.npos) return false;
    if (text[first] == '{' || (at == 0 && text[first] == '[')) return true;
    at = std::min(text.find('\n', first), text.size());
  }
  return false;
}

std::vector<RecordKeys> Look(std::string_view path, std::string_view head) {
  std::vector<RecordKeys> records;
  if (MayHoldSamples(head)) {
    records.push_back(KeysOfTorchSamples(std::string(path)));
  } else if (IsCompressed(head)) {
    AddLines(FirstBytes(path, head, kLook), &records);
  } else if (MayHoldObjects(head)) {
    std::string bytes =
        head.size() < Reader::kHeadBytes ? std::string(head) : FirstBytes(path, head, kLook);
    if (bytes.size() >= kLook && EndsInBatch(bytes)) bytes = FirstBytes(path, head, kLookOfBatch);
    AddLines(std::move(bytes), &records);
  }
  return records;
}

}  // namespace

const std::vector<RecordKeys>& KeysOfRecords(std::string_view path, std::string_view head) {
  struct Last {
    std::string path, head;
    uintmax_t size = 0;
    std::vector<RecordKeys> records;
  };
  thread_local Last last;
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (last.path != path || last.head != head || last.size != size || path.empty())
    last = {std::string(path), std::string(head), size, Look(path, head)};
  return last.records;
}

}  // namespace plumbline::audit
