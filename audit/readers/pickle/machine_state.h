// The machine that reads a pickle: stack, memo, and what each opcode does to them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "audit/readers/pickle/machine.h"
#include "audit/readers/pickle/opcodes.h"

namespace plumbline::audit {

// One pickle. Each step returns false when the pickle is refused: `problem` says why.
class PickleMachine {
 public:
  PickleMachine(std::string_view data, const PickleLimits& limits, PickleTree* tree);

  bool Run();
  size_t used() const { return at_; }
  std::optional<Problem> problem;

 private:
  bool Step(PickleOp op);
  bool StepOther(PickleOp op);

  // ---- bytes (source.cc)
  bool Fail(std::string text);
  // The next bytes; nothing: there are fewer.
  std::optional<std::string_view> Take(uint64_t size, const char* what);
  // Up to the next line feed, without it.
  std::optional<std::string_view> Line(const char* what);
  // Little-endian, of `width` bytes.
  std::optional<uint64_t> Number(size_t width, const char* what);
  // A length of `width` bytes, then that many.
  std::optional<std::string_view> Counted(size_t width, const char* what);

  // ---- the stack
  bool Push(PickleId id);
  std::optional<PickleId> Pop();
  // The value on top, which stays; nothing: there is none since the last mark.
  std::optional<PickleId> Top();
  // The values since the last mark, which goes.
  std::optional<std::vector<PickleId>> PopToMark();
  bool Remember(uint64_t place);
  bool Recall(uint64_t place);

  // ---- values (build.cc); each pushes its value
  PickleId New(PickleKind kind);
  bool PushNew(PickleKind kind);
  bool PushWhole(int64_t value);
  bool PushReal(double value);
  bool PushSpan(PickleKind kind, std::string_view text);    // of the pickle's bytes
  bool PushOwned(PickleKind kind, std::string_view text);   // of nobody else's
  bool PushOldString(std::string_view text, bool in_data);  // Python 2's
  bool PushLong(std::string_view bytes);                    // two's complement
  bool PushDecimal(std::optional<std::string_view> line, bool truth);
  bool PushItems(PickleKind kind, std::vector<PickleId> items);
  bool PushTuple(size_t size);
  bool PushGlobal(std::string_view module, std::string_view name);
  bool PushPersistent(PickleId id);
  bool PushCall(PickleId callee, PickleId arguments, PickleId keywords = kNoPickle);
  bool StackGlobal();

  // ---- what is put into a value later (build.cc)
  bool Extend(std::optional<std::vector<PickleId>> items, PickleKind kind);
  bool Build();
  bool Grow(std::vector<PickleId>* items, const std::vector<PickleId>& more);

  // ---- calls (calls.cc)
  bool Reduce();
  bool NewObject(bool with_keywords);
  bool Instance();
  bool Object();
  bool Call(PickleId callee, PickleId arguments);
  // Pushes what a call of one of Python's own plain types makes; nothing: it is none.
  std::optional<bool> PlainCall(std::string_view name, PickleId arguments);
  bool SetVariant(bool variant);
  bool PushSameItems(PickleKind kind, PickleId of);
  bool PushBytesOf(PickleId id);
  bool PushPairs(PickleId arguments);
  std::optional<PickleId> Argument(PickleId arguments, size_t i) const;

  std::string_view data_;
  const PickleLimits& limits_;
  PickleTree& tree_;
  size_t at_ = 0;
  size_t op_at_ = 0;  // of the opcode that is being carried out
  bool stopped_ = false;
  size_t items_ = 0;  // of all containers
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  absl::flat_hash_map<uint64_t, PickleId> memo_;
  absl::flat_hash_map<std::string, PickleId> globals_;
  PickleId none_ = 0, true_ = 0, false_ = 0;
};

// Of a key that a dict was given again Python keeps the first place and the last value.
void KeepLastOfKeys(PickleTree* tree);

// Cuts the circles that lead through a call. Refuses those of plain containers alone, and what is
// deeper or, unfolded, larger than the limits.
std::optional<Problem> CheckPickle(PickleTree* tree, const PickleLimits& limits);

}  // namespace plumbline::audit
