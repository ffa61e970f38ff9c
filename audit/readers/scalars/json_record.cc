#include "audit/readers/scalars/json_record.h"

#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;

bool MayBeNumber(char c) {
  return IsDigit(c) || c == '-' || c == '+' || c == '.' || c == 'n' || c == 'N' || c == 'i' ||
         c == 'I' || c == '\xE2';
}

}  // namespace

bool JsonRecord::Read(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape,
                      std::string_view prefix) {
  name_ = prefix;
  lengths_.assign(1, name_.size());
  if (!cursor->EnterObject()) return false;
  std::string_view key;
  while (!lengths_.empty()) {
    name_.resize(lengths_.back());
    if (!cursor->NextMember(&key)) {
      if (cursor->failed()) return false;
      lengths_.pop_back();
      continue;
    }
    if (!name_.empty()) name_ += '/';
    name_.append(key.substr(0, kMostName));
    const bool deep = lengths_.size() == kMostDepth || name_.size() > kMostName;
    if (cursor->Peek() == Kind::kObject && !deep) {
      lengths_.push_back(name_.size());
      if (!cursor->EnterObject()) return false;
    } else if (!Value(cursor, text, taker, shape)) {
      return false;
    }
  }
  return true;
}

bool JsonRecord::Value(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape) {
  double value = 0;
  NumberText ignored;
  switch (cursor->Peek()) {
    case Kind::kNumber:
      if (!cursor->ReadNumber(&value, &ignored)) return false;
      ++shape->numbers;
      taker->Take(name_, value);
      return true;
    case Kind::kWord: {
      const size_t begin = cursor->offset();
      if (!cursor->Skip()) return false;
      const std::string_view stated = text.substr(begin, cursor->offset() - begin);
      if (const auto word = NumberOf(stated)) {
        ++shape->numbers;
        taker->Take(name_, *word);
      }
      return true;
    }
    case Kind::kNull:
      taker->TakeNull(name_);
      return cursor->Skip();
    case Kind::kString:
      return Text(cursor, text, taker, shape);
    case Kind::kList:
      ++shape->lists;
      return cursor->Skip();
    default:
      return cursor->Skip();
  }
}

bool JsonRecord::Text(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape) {
  constexpr size_t kMostDigits = 40;
  const size_t begin = cursor->offset() + 1;
  if (!cursor->Skip()) return false;
  const std::string_view inside = text.substr(begin, cursor->offset() - begin - 1);
  if (!inside.empty() && inside.size() <= kMostDigits && MayBeNumber(inside.front())) {
    if (const auto value = NumberOf(inside)) {
      ++shape->numbers;
      taker->Take(name_, *value);
      return true;
    }
    // A text may be a count, as in "global_step/max_steps": "755/1000".
    const std::optional<int64_t> count = CountIn(inside);
    if (count && (StepNameRank(name_) >= 0 || IsNestedStep(name_))) {
      ++shape->numbers;
      taker->Take(name_, static_cast<double>(*count));
      return true;
    }
  }
  ++shape->texts;
  taker->TakeText(name_, inside);
  return true;
}

}  // namespace plumbline::audit
