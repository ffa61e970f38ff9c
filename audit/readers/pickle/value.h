// The values that a pickle makes, as an acyclic graph. Resolves nothing: a global is a name, a call
// is a name with arguments. If an object refers back to itself (it holds one of its bound methods),
// this reference is cut.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plumbline::audit {

using PickleId = uint32_t;  // index of a value in its tree
inline constexpr PickleId kNoPickle = UINT32_MAX;

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,   // an integer that fits in 64 bits
  kLong,  // a larger integer: `bytes` are its two's complement, lowest byte first
  kReal,
  kText,   // UTF-8 as written; Python may write lone surrogates
  kBytes,  // bytes; a bytearray is its `variant`
  kList,
  kTuple,
  kSet,         // a frozenset is its `variant`
  kDict,        // each key once, with its last value
  kGlobal,      // `text` is "module.name"; Python 2's modules have Python 3's names
  kCall,        // the result of a call of a global
  kPersistent,  // a reference to an object outside of the pickle: one item, the id
  // An empty value in place of a reference back to a value that contains it, through a call.
  kCircle,
  kRun,  // represents items that were read but not kept; in a dict it is both key and value
};

// The parts of a call. An absent part is kNoPickle.
struct PickleCall {
  PickleId callee = kNoPickle;
  PickleId arguments = kNoPickle;  // arguments: a tuple
  PickleId keywords = kNoPickle;   // keyword arguments: a dict
  PickleId state = kNoPickle;      // state that was set after the call (__setstate__)
  PickleId items = kNoPickle;      // kList: items appended to it
  PickleId entries = kNoPickle;    // kDict: entries set in it
};

// Data of a value that replaces references back to a value that contains them.
struct PickleCircle {
  PickleId call = kNoPickle;  // the call on the cycle
  uint64_t count = 0;         // number of references that were cut
};

// Data of a value that replaces plain values (numbers, texts, containers of them) beyond the limit.
struct PickleRun {
  uint64_t items = 0;           // items of the container; for a dict, keys and values
  uint64_t values = 0;          // including values within the items
  uint32_t begin = 0, end = 0;  // the bytes of the pickle that made them
  // True if these bytes refer to nothing outside of them. Two such runs with the same bytes then
  // have the same values.
  bool closed = false;
};

// ParsePickle builds it. The parsed bytes must outlive the tree. Not thread-safe while it is built.
class PickleTree {
 public:
  PickleId root() const { return root_; }
  size_t size() const { return nodes_.size(); }

  PickleKind kind(PickleId id) const { return nodes_[id].kind; }
  bool Is(PickleId id, PickleKind kind) const { return id < size() && nodes_[id].kind == kind; }
  // Returns the offset of the value's opcode from the pickle's first byte.
  uint64_t offset(PickleId id) const { return nodes_[id].offset; }

  // Returns true for a bytearray or a frozenset.
  bool variant(PickleId id) const { return nodes_[id].variant; }

  bool truth(PickleId id) const { return nodes_[id].whole != 0; }
  int64_t whole(PickleId id) const { return nodes_[id].whole; }
  double real(PickleId id) const { return nodes_[id].real; }
  // Returns the text of texts, globals and longs, and of bytes that are not `latin`.
  std::string_view text(PickleId id) const;
  // Returns bytes in any encoding: protocols 0 to 2 write them as a text of latin-1 letters.
  std::string bytes(PickleId id) const;
  // Returns the items of lists, tuples, sets and persistent ids; for a dict key, value, key, value,
  // ...
  const std::vector<PickleId>& items(PickleId id) const { return items_[nodes_[id].span.at]; }
  const PickleCall& call(PickleId id) const { return calls_[nodes_[id].span.at]; }
  const PickleCircle& circle(PickleId id) const { return circles_[nodes_[id].span.at]; }
  const PickleRun& run(PickleId id) const { return runs_[nodes_[id].span.at]; }
  std::string_view run_bytes(PickleId id) const;
  bool has_runs() const { return !runs_.empty(); }
  // Returns the length of a list, a set or a dict (keys and values), including items that were not
  // kept.
  uint64_t length(PickleId id) const;

  // Returns the name of a call's callee; "" if the value is not a call, or calls no global.
  std::string_view callee(PickleId id) const;
  // Returns the last value of a key with this text; kNoPickle if there is none, or the value is not
  // a dict.
  PickleId Find(PickleId dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  friend class PickleWalk;
  struct Span {
    uint32_t at, size;
  };
  struct Node {
    PickleKind kind = PickleKind::kNone;
    bool owned = false;  // the text is in `owned_`, not in the pickle's bytes
    bool latin = false;  // the value is bytes that were written as text
    bool variant = false;
    uint32_t offset = 0;
    union {
      int64_t whole = 0;
      double real;
      Span span;
    };
  };

  std::string_view data_;
  std::string owned_;
  std::vector<Node> nodes_;
  std::vector<std::vector<PickleId>> items_;
  std::vector<PickleCall> calls_;
  std::vector<PickleCircle> circles_;
  std::vector<PickleRun> runs_;
  PickleId root_ = kNoPickle;
};

}  // namespace plumbline::audit
