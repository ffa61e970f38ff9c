#include "audit/readers/log_document/log_export.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "audit/readers/log_document/json_texts.h"

namespace plumbline::audit {
namespace {

using Kind = JsonCursor::Kind;

// A message and its time: digits, or "2026-01-31T10:00:00.5Z". If the time is "", it is that of the
// preceding message.
struct TimedLine {
  std::string time, text;

  // Returns a sort key. Numbers of the same length, and times of one zone, are ordered like their
  // texts.
  std::pair<size_t, std::string_view> Order() const {
    const size_t digits = time.find_first_not_of("0123456789");
    return {std::min(digits, time.size()), std::string_view(time).substr(0, time.find('Z'))};
  }
};
using TimedLines = std::vector<TimedLine>;

bool ReadTime(JsonCursor* cursor, std::string* time) {
  constexpr double kMost = 1e18;
  if (cursor->Peek() == Kind::kString) return cursor->ReadString(time);
  if (cursor->Peek() != Kind::kNumber) return cursor->Skip();
  double number = 0;
  NumberText text;
  if (!cursor->ReadNumber(&number, &text)) return false;
  if (number >= 0 && number < kMost) *time = std::to_string(std::llround(number));
  return true;
}

// Reads {"timestamp": 1700000000000, "message": "step 1 loss 2.5"}, or Kaggle's {"time": 1.5,
// "data": ...}.
void ReadMessage(JsonCursor* cursor, TimedLines* lines) {
  static constexpr std::string_view kKeys[] = {"message", "textPayload", "log",
                                               "line",    "msg",         "data"};
  if (!cursor->EnterObject()) return;
  TimedLine line;
  for (std::string_view key; cursor->NextMember(&key);) {
    const bool is = cursor->Peek() == Kind::kString &&
                    std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
    const bool read = is                                          ? cursor->ReadString(&line.text)
                      : key == "timestamp" || key == "@timestamp" ? ReadTime(cursor, &line.time)
                                                                  : cursor->Skip();
    if (!read) break;
  }
  if (!line.text.empty()) lines->push_back(std::move(line));
}

// Reads ["1700000000000000000", "step 1 loss 2.5", ...].
void ReadPair(JsonCursor* cursor, TimedLines* lines) {
  if (!cursor->EnterList()) return;
  TimedLine line;
  for (int i = 0; cursor->NextElement(); ++i) {
    const bool is = i < 2 && cursor->Peek() == Kind::kString;
    if (!(is ? cursor->ReadString(i == 0 ? &line.time : &line.text) : cursor->Skip())) break;
  }
  if (!line.text.empty()) lines->push_back(std::move(line));
}

// Reads {"status": "success", "data": {"resultType": "streams", "result": [{"values": [...]}]}}.
void ReadAnswerOfLoki(JsonCursor* cursor, TimedLines* lines) {
  if (!cursor->EnterObject()) return;
  for (std::string_view key; cursor->NextMember(&key);) {
    if (key == "data") {
      EachOf(cursor, "result", Kind::kObject,
             [&] { EachOf(cursor, "values", Kind::kList, [&] { ReadPair(cursor, lines); }); });
    } else {
      cursor->Skip();
    }
    if (cursor->failed()) return;
  }
}

// Reads Elasticsearch's {"hits": {"hits": [{"_source": {"message": ...}}]}}.
void ReadHits(JsonCursor* cursor, TimedLines* lines) {
  if (!cursor->EnterObject()) return;
  for (std::string_view key; cursor->NextMember(&key);) {
    if (key != "hits" || cursor->Peek() != Kind::kObject) {
      if (!cursor->Skip()) return;
      continue;
    }
    EachOf(cursor, "hits", Kind::kObject, [&] {
      if (!cursor->EnterObject()) return;
      for (std::string_view inner; cursor->NextMember(&inner);) {
        const bool source = inner == "_source" && cursor->Peek() == Kind::kObject;
        source ? ReadMessage(cursor, lines) : static_cast<void>(cursor->Skip());
        if (cursor->failed()) return;
      }
    });
    if (cursor->failed()) return;
  }
}

// Sorts by time, because services return the newest line first, and each stream separately.
void OrderByTime(TimedLines* lines) {
  if (lines->empty()) return;
  for (size_t i = 1; i < lines->size(); ++i) {
    if ((*lines)[i].time.empty()) (*lines)[i].time = (*lines)[i - 1].time;
  }
  if (lines->front().Order() > lines->back().Order()) std::reverse(lines->begin(), lines->end());
  std::stable_sort(lines->begin(), lines->end(),
                   [](const auto& a, const auto& b) { return a.Order() < b.Order(); });
}

bool HasHits(std::string_view json) {
  const std::string_view begin = json.substr(0, 256);
  return begin.find("\"hits\"") != std::string_view::npos;
}

bool IsAnswerOfLoki(std::string_view json) {
  const std::string_view begin = json.substr(0, 256);
  return begin.find("\"data\"") < begin.find("\"result") && begin.find("\"result") < begin.size();
}

}  // namespace

bool LooksLikeExport(std::string_view json) {
  const std::string_view begin = json.substr(0, 64);
  return (begin[0] == '{' && begin.find("\"events\"") != std::string_view::npos) ||
         (begin[0] == '{' && HasHits(json)) ||
         (begin[0] == '[' && begin.find('{') != std::string_view::npos) ||
         (begin[0] == '{' && IsAnswerOfLoki(json));
}

std::string LinesOfExport(std::string_view json) {
  TimedLines lines;
  JsonCursor cursor(json);
  const auto read = [&] { ReadMessage(&cursor, &lines); };
  if (cursor.Peek() == Kind::kList) {
    EachElement(&cursor, Kind::kObject, read);
  } else if (IsAnswerOfLoki(json)) {
    ReadAnswerOfLoki(&cursor, &lines);
  } else if (HasHits(json)) {
    ReadHits(&cursor, &lines);
  } else {
    EachOf(&cursor, "events", Kind::kObject, read);
  }
  OrderByTime(&lines);
  std::string out;
  for (const TimedLine& line : lines) {
    out += line.text;
    EndLine(&out);
  }
  return out;
}

}  // namespace plumbline::audit
