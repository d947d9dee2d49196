package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// flagValue lets a pointer into the Config be set by flag and environment alike.
type flagValue struct{ target any }

func newFlagValue(target any) flag.Value { return flagValue{target} }

// IsBoolFlag allows --insecure without a value.
func (v flagValue) IsBoolFlag() bool {
	_, ok := v.target.(*bool)
	return ok
}

func (v flagValue) String() string {
	switch t := v.target.(type) {
	case *string:
		return *t
	case *bool:
		return strconv.FormatBool(*t)
	case *int:
		return strconv.Itoa(*t)
	case *int64:
		return strconv.FormatInt(*t, 10)
	case *uint64:
		return strconv.FormatUint(*t, 10)
	case *time.Duration:
		return t.String()
	case *[]string:
		return strings.Join(*t, " ")
	default: // the flag package makes a zero flagValue to compare defaults with
		return ""
	}
}

func (v flagValue) Set(s string) error {
	var err error
	switch t := v.target.(type) {
	case *string:
		*t = s
	case *bool:
		*t, err = strconv.ParseBool(s)
	case *int:
		*t, err = strconv.Atoi(s)
	case *int64:
		*t, err = strconv.ParseInt(s, 10, 64)
	case *uint64:
		*t, err = strconv.ParseUint(s, 10, 64)
	case *time.Duration:
		*t, err = time.ParseDuration(s)
	case *[]string: // given several times
		*t = append(*t, s)
	default:
		panic(fmt.Sprintf("flag value of type %T", v.target))
	}
	if numError := (*strconv.NumError)(nil); errors.As(err, &numError) {
		return numError.Err
	}
	return err
}

// refusedValue is a flag that has no effect for the command. The command refuses the flag, else an
// operator would believe in an effect.
type refusedValue struct {
	flag.Value
	why string
}

func (v refusedValue) Set(string) error { return errors.New(v.why) }

// IsBoolFlag allows --insecure without a value, so that the refusal names the flag.
func (v refusedValue) IsBoolFlag() bool {
	b, ok := v.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}
