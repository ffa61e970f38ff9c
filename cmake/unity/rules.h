// Every rule names its page, its info, its options and its fix alike. Where several rules are
// compiled together (PLUMBLINE_UNITY) these names are told apart by UNITY_FILE, another word in
// each file.
#pragma once

#define PLUMB_JOINED(name, file) name##_##file
#define PLUMB_JOIN(name, file) PLUMB_JOINED(name, file)
#define kPage PLUMB_JOIN(kPage, UNITY_FILE)
#define kInfo PLUMB_JOIN(kInfo, UNITY_FILE)
#define kOptions PLUMB_JOIN(kOptions, UNITY_FILE)
#define kFix PLUMB_JOIN(kFix, UNITY_FILE)
