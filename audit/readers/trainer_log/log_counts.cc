#include "audit/readers/trainer_log/log_counts.h"

#include <algorithm>

namespace plumbline::audit {

size_t ReadTotal(std::string_view text, size_t at, int64_t* total) {
  size_t sign = PassBlanks(text, at);
  if (ByteIs(text, sign, '/')) {
    ++sign;
  } else if (text.substr(sign, 3) == "of " && sign > at) {
    sign += 3;
  } else {
    return at;
  }
  const size_t number = PassBlanks(text, sign);
  const size_t end = ReadLogCount(text, number, total);
  return end == number ? at : end;
}

size_t ReadRatio(std::string_view text, size_t at, LogMark* mark) {
  int64_t step = 0, total = 0;
  const size_t first = ReadLogCount(text, at, &step);
  if (first == at) return at;
  const size_t end = ReadTotal(text, first, &total);
  if (end == first || step > total || ByteIs(text, end, '/') || ByteIs(text, end, '.')) return at;
  mark->step = step;
  mark->total = total;
  return end;
}

size_t PassShare(std::string_view text, size_t at) {
  constexpr size_t kLongest = 10;
  const size_t open = PassBlanks(text, at);
  if (!ByteIs(text, open, '(')) return at;
  const size_t close = text.find(')', open);
  const bool share = close != std::string_view::npos && close - open <= kLongest;
  return share ? close + 1 : at;
}

size_t ReadBracket(std::string_view text, size_t at, LogMark* mark) {
  if (!ByteIs(text, at, '[')) return at;
  const size_t first = PassBlanks(text, at + 1);
  const size_t ratio = ReadRatio(text, first, mark);
  if (ratio == first) return at;
  const size_t end = PassBlanks(text, PassShare(text, ratio));
  return ByteIs(text, end, ']') ? end + 1 : at;
}

size_t ReadBatch(std::string_view text, size_t at, LogMark* mark) {
  static constexpr std::string_view kWords[] = {"batch", "batch_idx", "minibatch", "it"};
  for (const std::string_view word : kWords) {
    if (!HasWordAt(text, at, word)) continue;
    size_t number = PassBlanks(text, at + word.size());
    if (ByteIs(text, number, ':') || ByteIs(text, number, '=') || ByteIs(text, number, '#'))
      number = PassBlanks(text, number + 1);
    if (ByteIs(text, number, '[')) number = PassBlanks(text, number + 1);
    const size_t ratio = ReadRatio(text, number, mark);
    if (ratio != number) return ByteIs(text, ratio, ']') ? ratio + 1 : ratio;
    const size_t end = ReadLogCount(text, number, &mark->step);
    return end == number || ByteIs(text, end, '.') || ByteIs(text, end, '%') ? at : end;
  }
  return at;
}

size_t ReadBatches(std::string_view text, size_t at, LogMark* mark) {
  static constexpr Bytes kBetween(" \t,;:|-])");
  size_t from = at;
  while (from < text.size() &&
         (kBetween[text[from]] || static_cast<unsigned char>(text[from]) >= 0x80))
    ++from;
  size_t end = ReadBracket(text, from, mark);
  if (end == from && ByteIs(text, from, '[')) ++from, end = from;  // handles "[Batch 99]"
  if (end == from) end = ReadBatch(text, from, mark);
  if (end == from) end = ReadRatio(text, from, mark);
  if (end == from) return at;
  mark->batches = true;
  return ByteIs(text, end, ']') ? end + 1 : end;
}

}  // namespace plumbline::audit
