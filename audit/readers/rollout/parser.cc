#include "audit/readers/rollout/parser.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/spelling.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;

constexpr size_t kMostForeignKeys = 1000;

const char* ExpectedOf(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::kName:
      return "a string or a whole number";
    case ColumnKind::kText:
      return "a string";
    case ColumnKind::kInteger:
      return "a whole number";
    case ColumnKind::kNumber:
      return "a finite number";
    case ColumnKind::kIntegers:
      return "a list of whole numbers";
    case ColumnKind::kFlags:
      return "a list of 0 and 1";
    case ColumnKind::kNumbers:
      return "a list of numbers";
    case ColumnKind::kRouting:
      return "a list of tokens' lists of layers' lists of expert ids";
  }
  return "";
}

}  // namespace

std::string FoundAt(std::string_view line, size_t offset) {
  if (offset >= line.size()) return "the end of the line";
  constexpr size_t kMost = 24;
  std::string_view rest = line.substr(offset);
  if (rest[0] == '[' || rest[0] == '{') return rest[0] == '[' ? "a list" : "an object";
  size_t end = rest[0] == '"' ? rest.find('"', 1) : rest.find_first_of(" \t\r,]}:", 1);
  if (rest[0] == '"' && end != std::string_view::npos) ++end;
  rest = rest.substr(0, end);
  return rest.size() > kMost ? std::string(rest.substr(0, kMost)) + "..." : std::string(rest);
}

size_t OffsetOfElement(std::string_view line, size_t offset, size_t index) {
  const std::string_view value = line.substr(offset);
  JsonCursor cursor(value);
  while (cursor.Peek() == Kind::kList) {  // in nested lists of one element, uses the innermost
    JsonCursor inner(cursor);
    if (!inner.EnterList() || inner.Peek() != Kind::kList) break;
    cursor = std::move(inner);
  }
  if (!cursor.EnterList()) return offset;
  for (size_t i = 0; cursor.NextElement(); ++i) {
    cursor.Peek();
    if (i == index) return offset + cursor.offset();
    if (!cursor.Skip()) break;
  }
  return offset;
}

RolloutParser::RolloutParser(const ColumnMap& map) : map_(map) {
  for (const ColumnSource& source : map.columns) Insert(&keys_, source, 0);
}

void RolloutParser::Insert(std::vector<Key>* keys, const ColumnSource& source, size_t level) {
  const std::string& name = source.path[level];
  auto key = std::find_if(keys->begin(), keys->end(), [&](const Key& k) { return k.name == name; });
  if (key == keys->end()) {
    keys->push_back({name, nullptr, {}});
    key = keys->end() - 1;
  }
  if (level + 1 == source.path.size()) {
    key->source = &source;
  } else {
    Insert(&key->inner, source, level + 1);
  }
}

// Returns true if a value begins here. If not, the text may be truncated, and the problem is one of
// the text, not of the value.
bool RolloutParser::IsValue(const JsonCursor& cursor) {
  JsonCursor probe(cursor);
  const Kind kind = probe.Peek();
  if (kind != Kind::kWord && kind != Kind::kNone) return true;
  return probe.Skip() || Wrong(probe, 0, "");
}

bool RolloutParser::Wrong(const JsonCursor& cursor, size_t offset, std::string expected) {
  if (!problem_->expected.empty()) return false;
  if (cursor.failed()) {
    *problem_ = {cursor.offset(), cursor.expected(), FoundAt(line_, cursor.offset()), cursor.cut()};
  } else {
    *problem_ = {offset, std::move(expected), FoundAt(line_, offset), false};
  }
  return false;
}

bool RolloutParser::Parse(std::string_view line, RolloutColumns* columns, LineProblem* problem) {
  for (ColumnValue& value : *columns) value.Clear();
  *problem = {};
  line_ = line;
  columns_ = columns;
  problem_ = problem;
  JsonCursor cursor(line);
  const Kind kind = cursor.Peek();
  if (kind != Kind::kObject) {
    if (!IsValue(cursor)) return false;
    *problem = {cursor.offset(), "a JSON object", FoundAt(line, cursor.offset()), false};
    return false;
  }
  if (!ReadObject(cursor, keys_)) return Wrong(cursor, 0, "a JSON object");
  return cursor.AtEnd() || Wrong(cursor, 0, "");
}

bool RolloutParser::ReadObject(JsonCursor& cursor, const std::vector<Key>& keys) {
  if (!cursor.EnterObject()) return false;
  size_t guess = 0;  // keys usually have the same order in each line
  std::string_view name;
  size_t at = cursor.offset();
  for (; cursor.NextMember(&name); at = cursor.offset()) {
    const Key* key = nullptr;
    for (size_t i = 0; i < keys.size() && key == nullptr; ++i) {
      const size_t j = guess + i < keys.size() ? guess + i : guess + i - keys.size();
      if (keys[j].name != name) continue;
      key = &keys[j];
      guess = j + 1 < keys.size() ? j + 1 : 0;
    }
    if (key == nullptr) {
      if (map_.refuse_misspelt && Misspelt(cursor, name, at)) return false;
      if (!cursor.Skip()) return false;
    } else if (key->source != nullptr) {
      if (!ReadColumn(cursor, *key->source)) return false;
    } else if (cursor.Peek() == Kind::kObject) {
      if (!ReadObject(cursor, key->inner)) return false;
    } else if (!cursor.Skip()) {
      return false;
    }
  }
  return !cursor.failed();
}

bool RolloutParser::Misspelt(JsonCursor& cursor, std::string_view key, size_t offset) {
  if (foreign_.contains(key)) return false;
  const auto meant = MeantName(key, RolloutColumnNames());
  if (!meant || *meant == "length" || *meant == "run") {
    if (foreign_.size() < kMostForeignKeys) foreign_.emplace(key);
    return false;
  }
  const size_t quote = line_.find('"', offset);
  Wrong(cursor, quote == std::string_view::npos ? offset : quote, "key " + std::string(*meant));
  problem_->found = Quoted(key) + ", which is not read";
  return true;
}

bool RolloutParser::ReadColumn(JsonCursor& cursor, const ColumnSource& source) {
  const Kind kind = cursor.Peek();
  if (!IsValue(cursor)) return false;
  const size_t at = cursor.offset();
  ColumnValue& value = At(*columns_, source.column);
  const RolloutColumnInfo& info = InfoOf(source.column);
  if (value.present) return ReadAnother(cursor, source, at);
  value.offset = at;
  const bool of_token = map_.token_records && IsList(info.kind);
  if (kind == Kind::kNull && !of_token) {
    value.null = true;
    return cursor.Skip();
  }
  value.present = true;
  value.substitute = source.more;
  if (map_.lists_of_one && kind == Kind::kList) {
    JsonCursor inner(cursor);
    inner.EnterList();
    if (!IsList(info.kind) || inner.Peek() == Kind::kList) {
      cursor = std::move(inner);
      if (!cursor.NextElement()) return Wrong(cursor, at, "one element in " + source.Name());
      value.present = false;
      if (!ReadColumn(cursor, source)) return false;
      value.offset = at;
      return !cursor.NextElement() ? !cursor.failed()
                                   : Wrong(cursor, at, "one element in " + source.Name());
    }
  }
  return IsList(info.kind) && !of_token ? ReadList(cursor, source, &value)
                                        : ReadScalar(cursor, source, &value);
}

// Reads a further source of a column that already has a value. Multiplies masks. For other columns,
// uses the source that comes first in the map.
bool RolloutParser::ReadAnother(JsonCursor& cursor, const ColumnSource& source, size_t at) {
  ColumnValue& value = At(*columns_, source.column);
  const bool several = source.more || value.substitute;
  if (!several) return Wrong(cursor, at, "one " + source.Name());
  if (cursor.Peek() == Kind::kNull) return cursor.Skip();
  const bool mask = InfoOf(source.column).kind == ColumnKind::kFlags;
  if (!mask && source.more) return cursor.Skip();
  ColumnValue before;
  std::swap(before, value);
  if (!ReadColumn(cursor, source)) return false;
  if (!mask) return true;
  if (value.repeated) std::swap(before, value);
  if (!before.repeated && before.flags.size() != value.flags.size())
    return Wrong(cursor, at, std::to_string(before.flags.size()) + " entries of " + source.Name());
  for (size_t i = 0; i < value.flags.size(); ++i)
    value.flags[i] &= before.flags[before.repeated ? 0 : i];
  value.odd.insert(value.odd.end(), before.odd.begin(), before.odd.end());
  value.substitute = true;
  return true;
}

// Reads the only element of a list column. It is for one token or for all tokens.
bool RolloutParser::ReadScalar(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value) {
  const ColumnKind kind = InfoOf(source.column).kind;
  const size_t at = cursor.offset();
  const Kind found = cursor.Peek();
  const bool number = found == Kind::kNumber;
  const bool numeric = kind == ColumnKind::kNumber || kind == ColumnKind::kNumbers;
  NumberText* written = &value->written;
  bool good = false;
  if (kind == ColumnKind::kFlags && (found == Kind::kTrue || found == Kind::kFalse)) {
    value->number = found == Kind::kTrue ? 1 : 0;
    good = cursor.Skip();
  } else if (kind == ColumnKind::kNumbers && !number) {
    value->odd.push_back({0, at});
    value->number = std::nan("");
    good = cursor.Skip();
  } else if (found == Kind::kString && (kind == ColumnKind::kName || kind == ColumnKind::kText)) {
    return cursor.ReadString(&value->text);
  } else if (number) {
    if (!cursor.ReadNumber(&value->number, written)) return false;
    good = numeric || kind == ColumnKind::kFlags;
    if (!good && kind != ColumnKind::kText && kind != ColumnKind::kRouting) {
      std::vector<OddElement> odd;
      const std::string digits = "[" + std::string(line_.substr(at, cursor.offset() - at)) + "]";
      JsonCursor whole(digits);
      value->integers.clear();
      good = whole.ReadIntegers(&value->integers, &odd) && odd.empty();
      value->integer = good ? value->integers[0] : 0;
      value->text = std::to_string(value->integer);
      value->integers.clear();
    }
    if (kind == ColumnKind::kNumber && !std::isfinite(value->number)) good = false;
  }
  if (!good) return Wrong(cursor, at, std::string(ExpectedOf(kind)) + " for " + source.Name());
  value->number *= source.scale;
  switch (kind) {
    case ColumnKind::kFlags:
      value->flags.push_back(value->number != 0);
      break;
    case ColumnKind::kNumbers:
      value->numbers.push_back(value->number);
      break;
    case ColumnKind::kIntegers:
      value->integers.push_back(value->integer);
      break;
    default:
      break;
  }
  value->repeated = IsList(kind);
  return true;
}

bool RolloutParser::ReadList(JsonCursor& cursor, const ColumnSource& source, ColumnValue* value) {
  const RolloutColumnInfo& info = InfoOf(source.column);
  const size_t at = cursor.offset();
  const Kind found = cursor.Peek();
  if (found != Kind::kList) {
    if (info.repeats && (found == Kind::kNumber || found == Kind::kTrue || found == Kind::kFalse))
      return ReadScalar(cursor, source, value);
    return Wrong(cursor, at, std::string(ExpectedOf(info.kind)) + " for " + source.Name());
  }
  if (source.of_calls) return ReadCalls(cursor, value);
  switch (info.kind) {
    case ColumnKind::kIntegers:
      return cursor.ReadIntegers(&value->integers, &value->odd);
    case ColumnKind::kFlags:
      return cursor.ReadFlags(&value->flags, &value->odd);
    case ColumnKind::kRouting:
      return ReadRouting(cursor, source, value);
    default:
      break;
  }
  if (!cursor.ReadNumbers(&value->numbers, &value->written, &value->odd)) return false;
  if (source.scale != 1) {
    for (double& x : value->numbers) x *= source.scale;
    if (std::fabs(source.scale) != 1) value->written.full = true;
  }
  return true;
}

// Reads one value of each call that generated a part of the sequence. The lengths of the parts are
// not recorded. So if calls have different values, or values that are not numbers, leaves the
// column out.
bool RolloutParser::ReadCalls(JsonCursor& cursor, ColumnValue* value) {
  std::set<std::string, std::less<>> seen;
  if (!cursor.EnterList()) return false;
  while (cursor.NextElement()) {
    if (!IsValue(cursor)) return false;
    cursor.Peek();
    const size_t at = cursor.offset();
    if (!cursor.Skip()) return false;
    std::string_view text = line_.substr(at, cursor.offset() - at);
    if (text.size() > 2 && text.front() == '"') text = text.substr(1, text.size() - 2);
    seen.emplace(text);
  }
  if (cursor.failed()) return false;
  int64_t version = 0;
  value->present = seen.size() == 1 && absl::SimpleAtoi(*seen.begin(), &version);
  if (!value->present) return true;
  value->integers = {version};
  value->repeated = true;
  return true;
}

bool RolloutParser::ReadRouting(JsonCursor& cursor, const ColumnSource& source,
                                ColumnValue* value) {
  if (!cursor.EnterList()) return false;
  for (size_t row = 0; cursor.NextElement(); ++row) {
    const bool there = cursor.Peek() != Kind::kNull;
    value->flags.push_back(there);
    if (!there) value->odd.push_back({row, cursor.offset()});
    if (!(there ? ReadLayers(cursor, source, row, value) : cursor.Skip())) return false;
  }
  return !cursor.failed();
}

// Reads one token's layers. They must have the shape of the first token that has layers.
bool RolloutParser::ReadLayers(JsonCursor& cursor, const ColumnSource& source, size_t row,
                               ColumnValue* value) {
  const size_t at = cursor.offset();
  const auto wrong = [&](const std::string& expected) {
    return Wrong(cursor, at, expected + " in " + source.Name() + "[" + std::to_string(row) + "]");
  };
  if (!IsValue(cursor)) return false;
  if (cursor.Peek() != Kind::kList) return wrong("a list of layers");
  cursor.EnterList();
  int64_t layers = 0;
  for (; cursor.NextElement(); ++layers) {
    if (!IsValue(cursor)) return false;
    if (cursor.Peek() != Kind::kList) return wrong("lists of expert ids");
    const size_t before = value->integers.size();
    std::vector<OddElement> odd;
    if (!cursor.ReadIntegers(&value->integers, &odd)) return false;
    const auto choices = static_cast<int64_t>(value->integers.size() - before);
    if (!odd.empty()) return wrong("whole numbers as expert ids");
    if (value->layers == 0 && layers == 0) value->choices = choices;
    if (choices == 0 || choices != value->choices)
      return wrong("lists of " + std::to_string(std::max<int64_t>(value->choices, 1)) +
                   " expert ids");
  }
  if (cursor.failed()) return false;
  if (layers == 0) return wrong("at least one layer");
  if (value->layers == 0) value->layers = layers;
  return layers == value->layers || wrong(std::to_string(value->layers) + " layers");
}

}  // namespace plumbline::audit
