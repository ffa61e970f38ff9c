// Every rule uses the same names for its page, its info, its options and its fix. If several rules
// are compiled together (PLUMBLINE_UNITY), UNITY_FILE, which differs in each file, makes these
// names unique.
#pragma once

#define PLUMB_JOINED(name, file) name##_##file
#define PLUMB_JOIN(name, file) PLUMB_JOINED(name, file)
#define kPage PLUMB_JOIN(kPage, UNITY_FILE)
#define kInfo PLUMB_JOIN(kInfo, UNITY_FILE)
#define kOptions PLUMB_JOIN(kOptions, UNITY_FILE)
#define kFix PLUMB_JOIN(kFix, UNITY_FILE)
