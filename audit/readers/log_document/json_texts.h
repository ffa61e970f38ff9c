// Reads texts in JSON documents that hold a log: notebooks, exports of log services.
#pragma once

#include <string>
#include <string_view>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {

inline void EndLine(std::string* out) {
  if (!out->empty() && !out->ends_with('\n')) *out += '\n';
}

// The cursor is at a list. Calls `read` at each element of this kind.
template <typename Read>
void EachElement(JsonCursor* cursor, JsonCursor::Kind kind, const Read& read) {
  if (!cursor->EnterList()) return;
  while (cursor->NextElement()) {
    if (cursor->Peek() == kind) {
      read();
    } else {
      cursor->Skip();
    }
    if (cursor->failed()) return;
  }
}

// The same, if the cursor is at an object and the list is a member of it.
template <typename Read>
void EachOf(JsonCursor* cursor, std::string_view member, JsonCursor::Kind kind, const Read& read) {
  if (cursor->Peek() != JsonCursor::Kind::kObject || !cursor->EnterObject()) return;
  for (std::string_view key; cursor->NextMember(&key);) {
    if (key == member && cursor->Peek() == JsonCursor::Kind::kList) {
      EachElement(cursor, kind, read);
    } else if (!cursor->Skip()) {
      return;
    }
  }
}

}  // namespace plumbline::audit
